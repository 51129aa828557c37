package propagation

import (
	"context"
	"fmt"
	"time"

	"github.com/moonsail/moonsail/internal/lab/experiment"
)

// Expedia's case.
const (
	knownLimit = 100.0 // ms until no proxy knows a dead pod, p99
	// What restarting and scaling takes, about, for each pod that goes, and beside that.
	podTime, besideTime = 50 * time.Millisecond, 8 * time.Second
)

// throttles are settings to compare as Expedia did, with one that differs here from the default on any machine of two
// CPUs or more; and Istio's debounce.
var throttles = []setting{{name: defaultSetting}, istioDebounce, oneSender}

// expedia has Deployments of hundreds of pods restart at the same time, while another one is
// scaled down to half, and follows each pod that goes until no proxy knows it any more. It
// looks at the control plane's intake and stages all the while.
func expedia(ctx context.Context, o *Options, dir string) (*Result, error) {
	base, err := newRestart(ctx, o, dir, o.Rollout)
	if err != nil {
		return nil, err
	}
	x := newTrial(base, throttles, []string{"Pod", "EndpointSlice"})
	x.happen = func(ctx context.Context, r experiment.Round) error { return x.fall(ctx, r.Warming) }
	gone := (o.Rollout.Deployments-1)*o.Rollout.Pods + o.Rollout.Pods/2
	e := x.experiment("expedia", "Dead pods that still get calls")
	e.About = fmt.Sprintf(`%d Deployments of %d pods restart at the same time, while another one is scaled to half: %d pods go.
Each is followed from when its EndpointSlice says that it is not ready to when the last of %d proxies has ACKed endpoints without it.`,
		o.Rollout.Deployments-1, o.Rollout.Pods, gone, o.Rollout.Proxies)
	e.Expect = time.Duration(len(e.Variants)) * (besideTime + time.Duration(gone)*podTime)
	e.Bars = append(e.Bars, experiment.Bar{What: "dead pod known to any proxy, p99", Metric: metricDead99, Variant: defaultSetting, Limit: knownLimit})
	return x.run(ctx, e)
}

// fall restarts all Deployments but the last, scales that down to half, and waits for the end.
// To warm up one restarts alone.
func (x *restart) fall(ctx context.Context, warming bool) error {
	last, half := x.size.Deployments-1, x.size.Pods/2
	if warming {
		last, half = 1, x.size.Pods
	}
	for i := range last {
		if err := x.again(ctx, i); err != nil {
			return err
		}
	}
	if err := x.scale(ctx, half); err != nil {
		return err
	}
	return x.rollout(ctx, x.counts(half))
}

// refill brings all pods back.
func (x *restart) refill(ctx context.Context) error {
	if !x.scaled {
		return nil
	}
	if err := x.scale(ctx, x.size.Pods); err != nil {
		return err
	}
	return x.rollout(ctx, x.counts(x.size.Pods))
}
