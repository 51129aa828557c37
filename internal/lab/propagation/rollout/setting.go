package rollout

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
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
)

// setting is a variant of a trial: the PILOT_ variables of our control plane, or the peer.
type setting struct {
	name string
	env  []string // "NAME=value"
	peer bool
}

// DefaultSetting is the name of the setting with which no event waits.
const DefaultSetting = "no debounce (default)"

// defectDebounce makes the default slow, to test that the report shows it.
var defectDebounce = []string{"PILOT_DEBOUNCE_AFTER=700ms", "PILOT_DEBOUNCE_MAX=700ms"}

// trial repeats the same events on Deployments under each of several settings, in turn. One goroutine uses it.
type trial struct {
	*restart
	settings []setting
	kinds    []string // of objects whose queues are reported
	happen   func(context.Context, experiment.Round) error

	routes     []float64 // of this measurement: milliseconds until the last proxy had a changed route
	routesMade uint32
	state      results.FinalState // of our control plane, over all measurements
	pictures   map[string]*drawn  // by setting, in the first round
}

// drawn has the charts of one measurement over time.
type drawn struct{ known, depth, stages experiment.Chart }

// newTrial chooses the settings. The peer is last.
func newTrial(x *restart, list []setting, kinds []string) *trial {
	t := &trial{restart: x, kinds: kinds, pictures: map[string]*drawn{}}
	for _, s := range list {
		if s.name == DefaultSetting && x.o.Defect {
			s.env = defectDebounce
		}
		if only := x.o.Settings; only == nil || slices.Contains(only, s.name) {
			t.settings = append(t.settings, s)
		}
	}
	if p := x.o.Peer; p != nil {
		t.settings = append(t.settings, setting{name: p.Name, peer: true})
	}
	return t
}

// experiment returns what all trials have in common.
func (x *trial) experiment(name, title string) *experiment.Experiment {
	e := &experiment.Experiment{
		Name: name, Title: title, Quick: x.o.Quick, Version: x.o.Version, Rounds: x.o.Rounds, Budget: max(x.o.Budget-x.clearing(), leastTime).Truncate(time.Second),
		Before: x.open, Metrics: x.metrics(), Plots: plots(), Finish: x.finish, Progress: x.o.Progress,
		Facts: []string{fmt.Sprintf("%d Deployments of %d pods, %d simulated proxies, controllers of Kubernetes without containers", x.size.Deployments, x.size.Pods, x.size.Proxies)},
		Targets: []experiment.Target{
			{What: "dead pods that a proxy still has at the end", Metric: metricLeft, Variant: DefaultSetting},
			{What: "proxies that differ from the API server at the end", Metric: metricWrong, Variant: DefaultSetting},
		},
	}
	for _, s := range x.settings {
		about := strings.Join(s.env, " ")
		if s.peer {
			about = "at " + x.o.Peer.Address + "; its settings stay as they are, and it reports neither stages nor queues"
		}
		e.Variants = append(e.Variants, experiment.Variant{Name: s.name, About: about, Series: s.name,
			Start: func(context.Context) (experiment.Subject, error) { return &row{x, s}, nil }})
		if s.name != DefaultSetting {
			e.Compare = append(e.Compare, experiment.Pair{Variant: s.name, Base: DefaultSetting, Metrics: compared})
		}
	}
	return e
}

// leastTime is the budget of a trial that begins when the run's budget is nearly spent.
const leastTime = 20 * time.Second

// clearing estimates how long an API server takes to delete everything.
func (x *trial) clearing() time.Duration {
	return 10*time.Second + time.Duration(x.size.Deployments*x.size.Pods)*40*time.Millisecond
}

// run runs the experiment and returns its result, also if it ended early.
func (x *trial) run(ctx context.Context, e *experiment.Experiment) (*results.Result, error) {
	report, err := experiment.Run(ctx, e)
	if report == nil {
		return nil, err
	}
	shape := meshfiles.Shape{Services: x.size.Deployments, Proxies: x.size.Proxies, Replicas: x.size.Pods}
	return &results.Result{Mesh: shape, State: &x.state, Report: report}, err
}

// row is one setting.
type row struct {
	trial *trial
	setting
}

// Stop implements experiment.Subject. Each measurement stops what it started.
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
		sleep, err := x.o.Peer.Wake()
		if err != nil {
			return nil, err
		}
		defer sleep()
	}
	defer func() { x.CP.Stop() }()
	if err = x.join(ctx, s.setting); err == nil {
		out, err = x.measure(ctx, s.setting, r)
	}
	return out, whyEnded(ctx, err)
}

func (x *trial) measure(ctx context.Context, s setting, r experiment.Round) (experiment.Sample, error) {
	_, before := x.registry.history()
	traffic, cpu := fleet.Total(x.CP.Fleet.Traffic()), x.CP.CPU()
	if x.CP.PID != 0 {
		child.ResetPeak(x.CP.PID)
	}
	x.routes = nil
	state, err := x.observed(ctx, func(ctx context.Context) error { return x.happen(ctx, r) })
	if err != nil {
		return nil, err
	}
	_, deaths := x.registry.history()
	list := stillKnown(deaths[len(before):], x.CP.Fleet.Catalog.Held())
	out := experiment.Sample{metricWrong: float64(state.Wrong), metricTook: x.recorder.took}
	addDead(out, list)
	addSpread(out, metricRoute, x.routes)
	x.costs(out, cpu, fleet.Total(x.CP.Fleet.Traffic()).Sub(traffic))
	x.inside(out)
	if !s.peer {
		x.state.Merge(state)
	}
	if r.Number == 1 {
		x.draw(s, list)
	}
	return out, nil
}

// costs adds the control plane's CPU time and memory, if its process is known, and the traffic to a proxy.
func (x *trial) costs(out experiment.Sample, cpu time.Duration, traffic fleet.Traffic) {
	proxies := float64(len(x.CP.Fleet.Proxies))
	out[metricBytes], out[metricMessages] = float64(traffic.Bytes)/proxies/1e6, float64(traffic.Messages)/proxies
	if x.CP.PID != 0 {
		out[metricCPU] = (x.CP.CPU() - cpu).Seconds()
		out[metricRSS] = float64(x.CP.Memory().Peak >> 20)
	}
}

// inside adds what our control plane reports: changes with their stages, and queues.
func (x *trial) inside(out experiment.Sample) {
	if x.CP.Process == nil {
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

// delaysOf returns the delays in milliseconds of the changes that at least one proxy received.
func delaysOf(list []changelog.Change) (whole []float64, stages [changelog.NumStages][]float64) {
	for _, c := range list {
		if c.Proxies.Acked == 0 {
			continue
		}
		parts, all := c.Timeline.Split(time.Microsecond)
		whole = append(whole, results.Millis(all))
		for i, s := range parts {
			stages[i] = append(stages[i], results.Millis(s))
		}
	}
	return whole, stages
}
