package rollout

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

// Rates and target of churn, in scenario churn and in airbnb.
const (
	RouteInterval = 5 * time.Second // Airbnb's report: a route changes every 5 s, a deployment restarts every 10 s
	ChurnLimit    = 60.0            // ms
	ChurnSeed     = 1
)

// Settings of both scenarios. A push throttle of at least the number of CPUs is the same as the default, because
// there are never more pushes at the same time than CPUs.
var (
	istioDebounce = setting{name: "debounce 100 ms, at most 10 s", env: []string{"PILOT_DEBOUNCE_AFTER=100ms", "PILOT_DEBOUNCE_MAX=10s"}}
	oneSender     = setting{name: "push throttle 1", env: []string{"PILOT_PUSH_THROTTLE=1"}}
)

// switches are the settings that Airbnb compared, as far as they differ here. The second one is Istio's default.
var switches = []setting{
	{name: DefaultSetting},
	istioDebounce,
	{name: "debounce, but not endpoints", env: []string{"PILOT_DEBOUNCE_AFTER=100ms", "PILOT_DEBOUNCE_MAX=10s", "PILOT_ENABLE_EDS_DEBOUNCE=false"}},
	{name: "debounce 1 s, at most 1 s", env: []string{"PILOT_DEBOUNCE_AFTER=1s", "PILOT_DEBOUNCE_MAX=1s"}},
	oneSender,
}

// warmShare divides the time of a measurement for the warm-up round.
const warmShare = 4

// RunAirbnb repeats Airbnb's report: of many small Deployments, one restarts every 10 s, and a route changes every 5 s.
func RunAirbnb(ctx context.Context, o *Options, dir string) (*results.Result, error) {
	base, err := newRestart(ctx, o, dir, o.Airbnb.Size)
	if err != nil {
		return nil, err
	}
	a := o.Airbnb
	x := newTrial(base, switches, []string{"Pod", "EndpointSlice", routeKind})
	x.happen = x.churn
	e := x.experiment("airbnb", "Changes at fixed intervals, by PILOT_ settings")
	e.About = fmt.Sprintf(`%d Deployments of %d pods: one restarts every %s and a route changes every %s, for %s under each setting. Each change of
a route is followed to the last of %d proxies before the next one, and so is each pod that stops being ready.`,
		a.Deployments, a.Pods, a.every(2), a.every(1), a.Time, a.Proxies)
	e.Expect = time.Duration(len(e.Variants)) * (a.Time + besideTime/2)
	e.Targets = append(e.Targets, experiment.Target{What: "p99 event to ACK", Metric: metricChange99, Variant: DefaultSetting, Limit: ChurnLimit})
	return x.run(ctx, e)
}

// churn makes random changes at fixed intervals, and waits for the last rollout.
func (x *trial) churn(ctx context.Context, r experiment.Round) error {
	length := x.o.Airbnb.Time
	if r.Warming {
		length /= warmShare
	}
	random := rand.New(rand.NewPCG(ChurnSeed, uint64(r.Number))) //nolint:gosec // the same for each setting of a round
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

// changeRoute replaces a service's VirtualService by one that differs from all before, and follows it to the last
// proxy.
func (x *trial) changeRoute(ctx context.Context, i int) error {
	x.routesMade++
	text, wants := meshfiles.Route(x.name(i), x.routesMade)
	commit, err := x.place.Stage(x.name(i)+"-route", text)
	if err != nil {
		return err
	}
	round := x.CP.Fleet.Expect(nil, wants...)
	defer x.CP.Fleet.Forget()
	round.Restart()
	if err := commit(); err != nil {
		return err
	}
	if err := x.CP.Await(ctx, round, session.ChangeTime); err != nil {
		return err
	}
	last := 0.0
	for _, took := range results.AllMillis(round.Latencies()) {
		last = max(last, took)
	}
	x.routes = append(x.routes, last)
	return nil
}

// every returns the time of that many changes of routes.
func (a *Airbnb) every(routes int) time.Duration {
	return time.Duration(float64(RouteInterval) * float64(routes) / a.Speed).Round(time.Millisecond)
}
