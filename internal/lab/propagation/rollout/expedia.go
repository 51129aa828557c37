package rollout

import (
	"context"
	"fmt"
	"time"

	"github.com/moonsail/moonsail/internal/lab/experiment"
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
)

// Target and expected times of the scenario expedia.
const (
	knownLimit = 100.0 // ms until no proxy knows a dead pod, p99
	// Estimated time of restarts and scaling: for each pod that ends, and in addition.
	podTime, besideTime = 50 * time.Millisecond, 8 * time.Second
)

// throttles are the settings that Expedia compared, as far as they differ here on machines with two CPUs or more, and
// Istio's debounce.
var throttles = []setting{{name: DefaultSetting}, istioDebounce, oneSender}

// RunExpedia restarts Deployments of hundreds of pods at the same time, while another one is scaled down to half. It
// follows each pod that ends until no proxy knows its address, and records the control plane's intake and stages.
func RunExpedia(ctx context.Context, o *Options, dir string) (*results.Result, error) {
	base, err := newRestart(ctx, o, dir, o.Expedia)
	if err != nil {
		return nil, err
	}
	x := newTrial(base, throttles, []string{"Pod", "EndpointSlice"})
	x.happen = func(ctx context.Context, r experiment.Round) error { return x.fall(ctx, r.Warming) }
	gone := (o.Expedia.Deployments-1)*o.Expedia.Pods + o.Expedia.Pods/2
	e := x.experiment("expedia", "Dead pods that still receive requests")
	e.About = fmt.Sprintf(`%d Deployments of %d pods restart at the same time, while another one is scaled to half: %d pods end.
Each is followed from the moment at which its EndpointSlice marks it as not ready, until the last of %d proxies has ACKed endpoints without it.`,
		o.Expedia.Deployments-1, o.Expedia.Pods, gone, o.Expedia.Proxies)
	e.Expect = time.Duration(len(e.Variants)) * (besideTime + time.Duration(gone)*podTime)
	e.Targets = append(e.Targets, experiment.Target{What: "time that a proxy knows a dead pod, p99", Metric: metricDead99, Variant: DefaultSetting, Limit: knownLimit})
	return x.run(ctx, e)
}

// fall restarts all Deployments but the last, scales the last down to half, and waits for the end. The warm-up
// restarts one Deployment only.
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

// refill scales the last Deployment up again.
func (x *restart) refill(ctx context.Context) error {
	if !x.scaled {
		return nil
	}
	if err := x.scale(ctx, x.size.Pods); err != nil {
		return err
	}
	return x.rollout(ctx, x.counts(x.size.Pods))
}
