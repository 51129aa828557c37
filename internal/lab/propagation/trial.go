package propagation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// setting is a row of a trial: how our control plane's switches are set, or the control plane
// that is measured beside.
type setting struct {
	name string
	env  []string // "NAME=value"
	peer bool
}

const defaultSetting = "nothing waits (default)"

// defectDebounce makes the default slow: a planted defect, which the report must show.
var defectDebounce = []string{"PILOT_DEBOUNCE_AFTER=700ms", "PILOT_DEBOUNCE_MAX=700ms"}

// trial lets the same happen to Deployments under each of several settings in turn. It belongs
// to the goroutine that runs its experiment.
type trial struct {
	*restart
	settings []setting
	kinds    []string // of objects whose queue is told
	happen   func(context.Context, experiment.Round) error

	routes     []float64 // milliseconds until a route's change was at the last proxy, of this measurement
	routesMade uint32
	state      FinalState        // of ours, all measurements together
	pictures   map[string]*drawn // by setting, of the first round
}

// drawn is what one measurement looked like over time.
type drawn struct{ known, depth, stages experiment.Chart }

// newTrial chooses the settings: the peer's goes last.
func newTrial(x *restart, list []setting, kinds []string) *trial {
	t := &trial{restart: x, kinds: kinds, pictures: map[string]*drawn{}}
	for _, s := range list {
		if s.name == defaultSetting && x.o.Defect {
			s.env = defectDebounce
		}
		if only := x.o.settings; only == nil || slices.Contains(only, s.name) {
			t.settings = append(t.settings, s)
		}
	}
	if p := x.o.Peer; p != nil {
		t.settings = append(t.settings, setting{name: p.Name, peer: true})
	}
	return t
}

// experiment is what all trials have in common.
func (x *trial) experiment(name, title string) *experiment.Experiment {
	e := &experiment.Experiment{
		Name: name, Title: title, Quick: x.o.Quick, Version: x.o.Version, Rounds: x.o.TrialRounds, Budget: max(x.o.schedule.left()-x.clearing(), leastTime).Truncate(time.Second),
		Before: x.open, Metrics: x.metrics(), Plots: plots(), Finish: x.finish, Progress: x.o.Progress,
		Facts: []string{fmt.Sprintf("%d Deployments of %d pods, %d simulated proxies, Kubernetes' controllers without a kubelet's containers", x.size.Deployments, x.size.Pods, x.size.Proxies)},
		Bars: []experiment.Bar{
			{What: "dead pods known to any proxy in the end", Metric: metricLeft, Variant: defaultSetting},
			{What: "proxies that do not have what the API server says in the end", Metric: metricWrong, Variant: defaultSetting},
		},
	}
	for _, s := range x.settings {
		about := strings.Join(s.env, " ")
		if s.peer {
			about = "at " + x.o.Peer.Address + "; it has no switches here, and tells neither stages nor queues"
		}
		e.Variants = append(e.Variants, experiment.Variant{Name: s.name, About: about, Series: s.name,
			Start: func(context.Context) (experiment.Subject, error) { return &row{x, s}, nil }})
		if s.name != defaultSetting {
			e.Compare = append(e.Compare, experiment.Pair{Variant: s.name, Base: defaultSetting, Metrics: compared})
		}
	}
	return e
}

// leastTime is for a trial that comes when the budget is all but spent.
const leastTime = 20 * time.Second

// clearing is how long an API server takes in the end to delete everything, about.
func (x *trial) clearing() time.Duration {
	return 10*time.Second + time.Duration(x.size.Deployments*x.size.Pods)*40*time.Millisecond
}

// run runs the experiment, and gives what it has found; also where it ended early.
func (x *trial) run(ctx context.Context, e *experiment.Experiment) (*Result, error) {
	report, err := experiment.Run(ctx, e)
	if report == nil {
		return nil, err
	}
	shape := meshfiles.Shape{Services: x.size.Deployments, Proxies: x.size.Proxies, Replicas: x.size.Pods}
	return &Result{Mesh: shape, State: &x.state, Report: report}, err
}

// row is one setting.
type row struct {
	trial *trial
	setting
}

// Stop implements experiment.Subject: each measurement ends what it starts.
func (*row) Stop() {}

// Measure implements experiment.Subject.
func (s *row) Measure(ctx context.Context, r experiment.Round) (out experiment.Sample, err error) {
	x := s.trial
	ctx, end := x.watch.during(ctx)
	defer end()
	if err := x.refill(ctx); err != nil {
		return nil, whyEnded(ctx, err)
	}
	if s.peer {
		sleep, err := x.o.Peer.wake()
		if err != nil {
			return nil, err
		}
		defer sleep()
	}
	defer func() { x.cp.stop() }()
	if err = x.join(ctx, s.setting); err == nil {
		out, err = x.measure(ctx, s.setting, r)
	}
	return out, whyEnded(ctx, err)
}

func (x *trial) measure(ctx context.Context, s setting, r experiment.Round) (experiment.Sample, error) {
	_, before := x.registry.history()
	traffic, cpu := fleet.Total(x.cp.fleet.Traffic()), x.cp.cpu()
	if x.cp.pid != 0 {
		child.ResetPeak(x.cp.pid)
	}
	x.routes = nil
	state, err := x.observed(ctx, func(ctx context.Context) error { return x.happen(ctx, r) })
	if err != nil {
		return nil, err
	}
	_, deaths := x.registry.history()
	list := stillKnown(deaths[len(before):], x.cp.fleet.Catalog.Held())
	out := experiment.Sample{metricWrong: float64(state.Wrong), metricTook: x.recorder.took}
	addDead(out, list)
	addSpread(out, metricRoute, x.routes)
	x.costs(out, cpu, fleet.Total(x.cp.fleet.Traffic()).Sub(traffic))
	x.inside(out)
	if !s.peer {
		x.state.merge(state)
	}
	if r.Number == 1 {
		x.draw(s, list)
	}
	return out, nil
}

// costs are the control plane's CPU time and memory, where its process is known, and what came
// to a proxy.
func (x *trial) costs(out experiment.Sample, cpu time.Duration, traffic fleet.Traffic) {
	proxies := float64(len(x.cp.fleet.Proxies))
	out[metricBytes], out[metricMessages] = float64(traffic.Bytes)/proxies/1e6, float64(traffic.Messages)/proxies
	if x.cp.pid != 0 {
		out[metricCPU] = (x.cp.cpu() - cpu).Seconds()
		out[metricRSS] = float64(x.cp.memory().Peak >> 20)
	}
}

// inside is what our control plane tells: changes and their stages, and its queues.
func (x *trial) inside(out experiment.Sample) {
	if x.cp.process == nil {
		return
	}
	whole, stages := delaysOf(x.recorder.recent())
	addSpread(out, metricChange, whole)
	for i, s := range changelog.Stages {
		addSpread(out, stageKey(s), stages[i])
	}
	_, out[metricDepth] = x.recorder.deepest()
	for _, k := range x.kinds {
		out[depthKey(k)] = highest(x.recorder.depth[k])
		if wait, work, ok := x.recorder.queue(k); ok {
			out[waitKey(k)], out[workKey(k)] = wait, work
		}
	}
}

// delaysOf takes the changes that some proxy got, in milliseconds.
func delaysOf(list []changelog.Change) (whole []float64, stages [changelog.NumStages][]float64) {
	for _, c := range list {
		if c.Proxies.Acked == 0 {
			continue
		}
		parts, all := c.Timeline.Split(time.Microsecond)
		whole = append(whole, millis(all))
		for i, s := range parts {
			stages[i] = append(stages[i], millis(s))
		}
	}
	return whole, stages
}
