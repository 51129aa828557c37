package propagation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// Settings of more than one case. A throttle of as many as there are CPUs, or more, is the default's program: there
// are never more pushes at the same time than CPUs.
var (
	istioDebounce = setting{name: "debounce 100 ms, at most 10 s", env: []string{"PILOT_DEBOUNCE_AFTER=100ms", "PILOT_DEBOUNCE_MAX=10s"}}
	oneSender     = setting{name: "push throttle 1", env: []string{"PILOT_PUSH_THROTTLE=1"}}
)

// switches are the settings that Airbnb compared, as far as they differ here. Istio's own debounce is the second.
var switches = []setting{
	{name: defaultSetting},
	istioDebounce,
	{name: "debounce, but not endpoints", env: []string{"PILOT_DEBOUNCE_AFTER=100ms", "PILOT_DEBOUNCE_MAX=10s", "PILOT_ENABLE_EDS_DEBOUNCE=false"}},
	{name: "debounce 1 s, at most 1 s", env: []string{"PILOT_DEBOUNCE_AFTER=1s", "PILOT_DEBOUNCE_MAX=1s"}},
	oneSender,
}

// warmShare is how much of a measurement's time warms up.
const warmShare = 4

// airbnb is their case: many small Deployments, one of which restarts each 10 s, while some
// route changes each 5 s.
func airbnb(ctx context.Context, o *Options, dir string) (*Result, error) {
	base, err := newRestart(ctx, o, dir, o.Airbnb.Rollout)
	if err != nil {
		return nil, err
	}
	a := o.Airbnb
	x := newTrial(base, switches, []string{"Pod", "EndpointSlice", routeKind})
	x.happen = x.churn
	e := x.experiment("airbnb", "Changes by the clock, and switches")
	e.About = fmt.Sprintf(`%d Deployments of %d pods: one restarts each %s, a route changes each %s, for %s under each setting. A route's change is
followed to the last of %d proxies, and the next waits for it; so is each pod that stops being ready.`,
		a.Deployments, a.Pods, a.every(2), a.every(1), a.Time, a.Proxies)
	e.Expect = time.Duration(len(e.Variants)) * (a.Time + besideTime/2)
	e.Bars = append(e.Bars, experiment.Bar{What: "p99 event to ACK", Metric: metricChange99, Variant: defaultSetting, Limit: churnLimit})
	return x.run(ctx, e)
}

// churn lets things change at random places by the clock, and waits for the last rollout.
func (x *trial) churn(ctx context.Context, r experiment.Round) error {
	length := x.o.Airbnb.Time
	if r.Warming {
		length /= warmShare
	}
	random := rand.New(rand.NewPCG(churnSeed, uint64(r.Number))) //nolint:gosec // the same for each setting of a round
	tick := time.NewTicker(x.o.Airbnb.every(1))
	defer tick.Stop()
	for n, begun := 1, time.Now(); time.Since(begun) < length; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := x.changeRoute(ctx, random.IntN(x.size.Deployments)); err != nil {
			return err
		}
		if n%2 == 0 {
			if err := x.again(ctx, random.IntN(x.size.Deployments)); err != nil {
				return err
			}
		}
	}
	return x.rollout(ctx, x.counts(x.size.Pods))
}

// changeRoute gives a service a VirtualService that differs from all before, and follows it to
// the last proxy.
func (x *trial) changeRoute(ctx context.Context, i int) error {
	x.routesMade++
	text, wants := meshfiles.Route(x.name(i), x.routesMade)
	commit, err := x.place.Stage(x.name(i)+"-route", text)
	if err != nil {
		return err
	}
	round := x.cp.fleet.Expect(nil, wants...)
	defer x.cp.fleet.Forget()
	round.Restart()
	if err := commit(); err != nil {
		return err
	}
	if err := x.cp.await(ctx, round, changeTime); err != nil {
		return err
	}
	last := 0.0
	for _, took := range allMillis(round.Latencies()) {
		last = max(last, took)
	}
	x.routes = append(x.routes, last)
	return nil
}

// every is the time between so many changes of routes.
func (a *Airbnb) every(routes int) time.Duration {
	return time.Duration(float64(churnRoute) * float64(routes) / a.Speed).Round(time.Millisecond)
}
