package propagation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/meshkube"
	"github.com/moonsail/moonsail/internal/lab/plot"
)

// Expedia's case.
const (
	knownLimit  = 100.0 // ms until no proxy knows a dead pod, p99
	rolloutTime = 10 * time.Minute
	rolloutPoll = 250 * time.Millisecond
	settleTime  = 30 * time.Second // for the proxies, once the API server is at rest
)

// expedia has Deployments of hundreds of pods restart at the same time, while another one is
// scaled down to half, and follows each pod that goes until no proxy knows it any more. It
// looks at the control plane's intake and stages all the while.
func expedia(ctx context.Context, o *Options, dir string) (*Result, error) {
	place, err := newPlace(ctx, o, dir)
	if err != nil {
		return nil, err
	}
	x, err := newRestart(o, dir, place, o.Rollout)
	if err != nil {
		return nil, err
	}
	defer x.close()
	var r *Result
	err = x.watched(ctx, func(ctx context.Context) (err error) {
		r, err = x.run(ctx)
		return err
	})
	return r, err
}

// newRestart is one on a place that must be an API server.
func newRestart(o *Options, dir string, at place, size Rollout) (*restart, error) {
	cluster, ok := at.Place.(*meshkube.Cluster)
	if !ok {
		return nil, errors.New("it needs --source kube")
	}
	return &restart{
		session: &session{opts: o, dir: filepath.Join(dir, "rollouts"), place: at}, cluster: cluster,
		size: size, registry: newRegistry(),
	}, nil
}

// watched has the registry follow the API server while something runs.
func (x *restart) watched(ctx context.Context, run func(context.Context) error) error {
	group, watching := errgroup.WithContext(ctx)
	watching, stop := context.WithCancel(watching)
	group.Go(func() error {
		err := x.cluster.WatchSlices(watching, meshfiles.Namespace, func(s meshkube.Slice) { x.registry.take(s, time.Now()) })
		if watching.Err() != nil {
			return nil //nolint:nilerr // it was told to end
		}
		return err
	})
	group.Go(func() error {
		defer stop()
		return run(watching)
	})
	return group.Wait()
}

// restart is Deployments in an API server, with proxies that see their services.
type restart struct {
	*session
	cluster  *meshkube.Cluster
	size     Rollout
	registry *registry
	recorder *recorder
}

func (x *restart) run(ctx context.Context) (*Result, error) {
	if err := x.deploy(ctx); err != nil {
		return nil, err
	}
	if err := x.join(ctx); err != nil {
		return nil, err
	}
	events, dead := x.registry.history()
	traffic, cpu := x.cp.fleet.Traffic(), x.cp.cpu()
	child.ResetPeak(x.cp.pid)
	state, err := x.observed(ctx, x.happen)
	if err != nil {
		return nil, err
	}
	now, deaths := x.registry.history()
	r := x.result(now-events, deaths[len(dead):])
	r.State = state
	r.Subject.CPU = SpreadOf([]float64{ratio(millis(x.cp.cpu()-cpu), float64(r.Subject.Changes))})
	r.Subject.Concerned, _ = x.cp.traffic(traffic)
	r.Subject.PeakRSS = x.cp.memory().Peak
	return r, nil
}

func (x *restart) name(i int) string { return fmt.Sprintf("shop-%d", i) }

// deploy creates the Deployments and waits for their pods.
func (x *restart) deploy(ctx context.Context) error {
	x.opts.progress("creating %d Deployments of %d pods", x.size.Deployments, x.size.Pods)
	for i := range x.size.Deployments {
		commit, err := x.place.Stage(x.name(i), deploymentYAML(x.name(i), x.size.Pods))
		if err == nil {
			err = commit()
		}
		if err != nil {
			return err
		}
	}
	return x.await(ctx, x.counts(x.size.Pods))
}

func deploymentYAML(name string, pods int) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  selector: {app: %[1]s}
  ports: [{name: http, port: %[4]d, targetPort: 8080}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  replicas: %[3]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: app, image: app}]}
`, name, meshfiles.Namespace, pods, meshfiles.Port)
}

// counts is how many pods each Deployment is to have; the last one other than the others.
func (x *restart) counts(last int) []int {
	out := slices.Repeat([]int{x.size.Pods}, x.size.Deployments)
	out[len(out)-1] = last
	return out
}

// await waits until the Deployments are rolled out and as many pods are ready.
func (x *restart) await(ctx context.Context, pods []int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, rolloutTime, fmt.Errorf("the rollout is not over after %s", rolloutTime))
	defer cancel()
	tick := time.NewTicker(rolloutPoll)
	defer tick.Stop()
	for {
		done, err := x.rolledOut(ctx, pods)
		if err != nil || done {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (x *restart) rolledOut(ctx context.Context, pods []int) (bool, error) {
	for i, n := range pods {
		if len(x.registry.ready(x.name(i))) != n {
			return false, nil
		}
		if done, err := x.cluster.RolledOut(ctx, meshfiles.Namespace, x.name(i)); err != nil || !done {
			return false, err
		}
	}
	return true, nil
}

// join starts the control plane and connects the proxies. They are in a namespace of their
// own, where nothing changes.
func (x *restart) join(ctx context.Context) error {
	if err := x.startControlPlane(ctx, anyPort, anyPort); err != nil {
		return err
	}
	for i := range x.size.Proxies {
		ip := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		x.ids = append(x.ids, fleet.Identity{Namespace: "clients", Name: fmt.Sprintf("client-%d", i), IP: ip.String()})
	}
	catalog := fleet.NewCatalog()
	catalog.Follow()
	x.cp.fleet = fleet.NewFleet(catalog, fleet.Options{Address: x.cp.address()}, x.ids)
	x.cp.fleet.Start(ctx)
	x.opts.progress("connecting %d proxies", x.size.Proxies)
	_, err := x.herd(ctx, &x.cp.subject, x.cp.fleet.Open)
	return err
}

// observed makes it happen while the recorder looks, and compares final states.
func (x *restart) observed(ctx context.Context, happen func(context.Context) error) (state *FinalState, err error) {
	x.recorder = newRecorder(x.cp.process.HTTP())
	group, watching := errgroup.WithContext(ctx)
	looking, stop := context.WithCancel(watching)
	group.Go(func() error { return x.recorder.run(looking) })
	group.Go(func() (err error) {
		defer stop()
		if err = happen(watching); err == nil {
			state, err = x.settle(watching)
		}
		return err
	})
	return state, group.Wait()
}

// happen restarts all Deployments but the last, scales that down to half, and waits for
// the end.
func (x *restart) happen(ctx context.Context) error {
	last := x.size.Deployments - 1
	x.opts.progress("expedia: %d Deployments of %d pods restart, one is scaled to half", last, x.size.Pods)
	for i := range last {
		if err := x.restart(ctx, i, 0); err != nil {
			return err
		}
	}
	half := x.size.Pods / 2
	if err := x.cluster.Patch(ctx, meshfiles.Namespace, x.name(last), fmt.Sprintf(`{"spec":{"replicas":%d}}`, half)); err != nil {
		return err
	}
	return x.await(ctx, x.counts(half))
}

// restart has a Deployment's pods replaced; n differs from that of the last time.
func (x *restart) restart(ctx context.Context, i, n int) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"%d"}}}}}`, n)
	return x.cluster.Patch(ctx, meshfiles.Namespace, x.name(i), patch)
}

// settle compares what every proxy holds with the API server's EndpointSlices until they
// agree, or have had time enough to.
func (x *restart) settle(ctx context.Context) (*FinalState, error) {
	x.opts.progress("comparing final states")
	tick := time.NewTicker(depthTick)
	defer tick.Stop()
	for begun := time.Now(); ; {
		state, err := x.compare(ctx)
		if err != nil || state.Wrong == 0 || time.Since(begun) > settleTime {
			return state, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (x *restart) compare(ctx context.Context) (*FinalState, error) {
	list, _, err := x.cluster.Slices(ctx, meshfiles.Namespace)
	if err != nil {
		return nil, err
	}
	said := newRegistry()
	for _, s := range list {
		said.take(s, time.Now())
	}
	out := &FinalState{Proxies: len(x.cp.fleet.Proxies)}
	for i := range x.size.Deployments {
		want := said.ready(x.name(i))
		out.Decoded += len(want)
		for _, p := range x.cp.fleet.Proxies {
			if has := p.Endpoints()[meshfiles.ClusterName(x.name(i))]; !slices.Equal(has, want) {
				out.wrong("%s: it has %d endpoints of %s, the API server has %d, or others", p.Name, len(has), x.name(i), len(want))
			}
		}
	}
	return out, nil
}

// result sums up.
func (x *restart) result(events int, deaths []death) *Result {
	list := stillKnown(deaths, x.cp.fleet.Catalog.Held())
	took, left := staleness(list)
	spread, changes := SpreadOf(took), x.recorder.recent()
	kind, depth := x.recorder.deepest()
	r := &Result{
		Mesh:    meshfiles.Shape{Services: x.size.Deployments, Proxies: x.size.Proxies, Replicas: x.size.Pods},
		Subject: Side{Changes: len(list), Last: spread, Proxies: spread, Curve: curve(took)},
		Note: fmt.Sprintf("%d pods stopped being ready, of %d Deployments of %d; until no proxy knew one: p50 %s, p90 %s, p99 %s, max %s ms. "+
			"%d events of EndpointSlices, %.0f of all kinds, %d revisions; at most %.0f objects waited (%s). Times are of pods, bytes are for each proxy in all.",
			len(list), x.size.Deployments, x.size.Pods, plot.Short(spread.P50), plot.Short(spread.P90), plot.Short(spread.P99), plot.Short(spread.Max),
			events, x.recorder.events(), len(changes), depth, kind),
		Charts: []Chart{
			x.recorder.depthChart(), x.recorder.stageChart(),
			{Title: "pods that are not ready and that some proxy still knows", Y: "pods", Lines: []ChartLine{{"pods", thin(knownOver(list, x.recorder.begun), x.recorder.took, true)}}},
		},
	}
	r.bar("dead pod known to any proxy, p99", spread.P99, knownLimit, "ms")
	r.bar("dead pods known to any proxy in the end", float64(left), 0, "")
	return r
}
