package propagation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/telemetry"
)

// setting is how a control plane's switches are set.
type setting struct {
	name string
	env  []string
}

// settings are those that Airbnb compared. Istio's own debounce is the second.
var settings = []setting{
	{"nothing waits (default)", nil},
	{"debounce 100 ms, at most 10 s", []string{"PILOT_DEBOUNCE_AFTER=100ms", "PILOT_DEBOUNCE_MAX=10s"}},
	{"debounce, but not endpoints", []string{"PILOT_DEBOUNCE_AFTER=100ms", "PILOT_DEBOUNCE_MAX=10s", "PILOT_ENABLE_EDS_DEBOUNCE=false"}},
	{"debounce 1 s, at most 1 s", []string{"PILOT_DEBOUNCE_AFTER=1s", "PILOT_DEBOUNCE_MAX=1s"}},
	{"push throttle 100", []string{"PILOT_PUSH_THROTTLE=100"}},
	{"push throttle 16", []string{"PILOT_PUSH_THROTTLE=16"}},
	{"push throttle 1", []string{"PILOT_PUSH_THROTTLE=1"}},
}

// rollouts is Airbnb's case: many small Deployments, one of which restarts each 10 s, while
// some route changes each 5 s.
type rollouts struct {
	*restart
	samples map[string]*delays // by setting
	version int                // of the routes
}

// delays are what changes took under one setting, in milliseconds.
type delays struct {
	whole  []float64
	stages [telemetry.NumStages][]float64
	chart  *Chart // of the first round
}

// airbnb lets it happen under each setting in turn, as often as there are rounds.
func airbnb(ctx context.Context, o *Options, dir string) (*Result, error) {
	place, err := newPlace(ctx, o, dir)
	if err != nil {
		return nil, err
	}
	base, err := newRestart(o, dir, place, o.Airbnb.Rollout)
	if err != nil {
		return nil, err
	}
	x := &rollouts{restart: base, samples: map[string]*delays{}}
	defer x.close()
	state := &FinalState{}
	err = x.watched(ctx, func(ctx context.Context) error { return x.all(ctx, state) })
	if err != nil {
		return nil, err
	}
	return x.result(state), nil
}

func (x *rollouts) all(ctx context.Context, state *FinalState) error {
	if err := x.deploy(ctx); err != nil {
		return err
	}
	for i := range x.size.Deployments {
		if err := x.changeRoute(i); err != nil {
			return err
		}
	}
	for round := range x.opts.Airbnb.Rounds {
		for _, s := range settings {
			x.opts.progress("airbnb: round %d of %d: %s", round+1, x.opts.Airbnb.Rounds, s.name)
			if err := x.one(ctx, s, state); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return nil
}

// one runs a control plane with one setting for a while.
func (x *rollouts) one(ctx context.Context, s setting, state *FinalState) error {
	x.env, x.ids = s.env, nil
	defer func() { x.cp.stop(); x.cp = controlPlane{} }()
	if err := x.join(ctx); err != nil {
		return err
	}
	x.opts.progress("airbnb: changes by the clock: %s", s.name)
	child.ResetPeak(x.cp.pid)
	got, err := x.observed(ctx, x.churn)
	if err != nil {
		return err
	}
	state.Proxies += got.Proxies
	state.Decoded += got.Decoded
	state.Wrong += got.Wrong
	state.First = append(state.First, got.First...)
	if x.samples[s.name] == nil {
		x.samples[s.name] = &delays{}
	}
	x.samples[s.name].add(x.recorder, s.name)
	return nil
}

// churn lets things change at random places by the clock, and waits for the last rollout.
func (x *rollouts) churn(ctx context.Context) error {
	random := rand.New(rand.NewPCG(churnSeed, churnSeed)) //nolint:gosec // the same for each setting
	tick := time.NewTicker(time.Duration(float64(churnRoute) / x.opts.Airbnb.Speed))
	defer tick.Stop()
	for n, begun := 1, time.Now(); time.Since(begun) < x.opts.Airbnb.Time; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := x.changeRoute(random.IntN(x.size.Deployments)); err != nil {
			return err
		}
		if n%2 == 0 {
			if err := x.restart.restart(ctx, random.IntN(x.size.Deployments), x.version); err != nil {
				return err
			}
		}
	}
	return x.await(ctx, slices.Repeat([]int{x.size.Pods}, x.size.Deployments))
}

// changeRoute gives a service a VirtualService that differs from all before.
func (x *rollouts) changeRoute(i int) error {
	x.version++
	commit, err := x.place.Stage(x.name(i)+"-route", fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  hosts: [%[1]s]
  http: [{timeout: %[3]dms, route: [{destination: {host: %[1]s}}]}]
`, x.name(i), meshfiles.Namespace, 1000+x.version))
	if err != nil {
		return err
	}
	return commit()
}

// add takes the changes that a recorder has seen and that some proxy got.
func (d *delays) add(r *recorder, setting string) {
	for _, c := range r.recent() {
		if c.Proxies.Acked == 0 {
			continue
		}
		stages, whole := c.Timeline.Split(time.Microsecond)
		d.whole = append(d.whole, millis(whole))
		for i, s := range stages {
			d.stages[i] = append(d.stages[i], millis(s))
		}
	}
	if d.chart == nil {
		c := stacked(r.stageChart())
		c.Title = setting + ": delay of changes by stage, one on the other (the longest of each moment)"
		d.chart = &c
	}
}

// stacked has each line stand on the one before. The highest comes first, and so is drawn
// below the others.
func stacked(c Chart) Chart {
	for i := 1; i < len(c.Lines); i++ {
		for j := range c.Lines[i].Points {
			c.Lines[i].Points[j][1] += c.Lines[i-1].Points[j][1]
		}
	}
	slices.Reverse(c.Lines)
	return c
}

func (x *rollouts) result(state *FinalState) *Result {
	a := x.opts.Airbnb
	r := &Result{
		Mesh: meshfiles.Shape{Services: a.Deployments, Proxies: a.Proxies, Replicas: a.Pods}, State: state,
		Note: fmt.Sprintf("%d Deployments of %d pods; one restarts each %s, a route changes each %s, for %s under each setting, %d rounds",
			a.Deployments, a.Pods, x.every(2), x.every(1), a.Time, a.Rounds),
	}
	for _, s := range settings {
		d := x.samples[s.name]
		row := SettingSpread{Setting: s.name, Env: s.env, Whole: SpreadOf(d.whole)}
		for i, stage := range telemetry.Stages {
			row.Stages = append(row.Stages, StageSpread{stage.String(), SpreadOf(d.stages[i])})
		}
		r.Settings = append(r.Settings, row)
		r.Charts = append(r.Charts, *d.chart)
	}
	first := r.Settings[0].Whole
	r.Subject = Side{Changes: first.N, Last: first, Proxies: first, Curve: curve(x.samples[settings[0].name].whole)}
	r.bar("p99 event to ACK, "+settings[0].name, first.P99, churnLimit, "ms")
	return r
}

func (x *rollouts) every(routes int) time.Duration {
	return time.Duration(float64(churnRoute) * float64(routes) / x.opts.Airbnb.Speed).Round(time.Millisecond)
}
