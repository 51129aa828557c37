package propagation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/lab/meshkube"
)

// Bounds of what happens to Deployments.
const (
	rolloutTime = 10 * time.Minute
	rolloutPoll = 250 * time.Millisecond
	settleTime  = 30 * time.Second // for the proxies, once the API server is at rest
)

// restart is Deployments in an API server, and a control plane with proxies that see their
// services: another one for each measurement.
type restart struct {
	*session // of the measurement under way
	o        *Options
	place    place
	cluster  *meshkube.Cluster
	size     Rollout
	registry *registry
	watch    *watch
	recorder *recorder
	scaled   bool // the last Deployment is scaled down
	version  int  // of the last restart
}

// newRestart is one on a place that must be an API server.
func newRestart(ctx context.Context, o *Options, dir string, size Rollout) (*restart, error) {
	at, err := newPlace(ctx, o, dir)
	if err != nil {
		return nil, err
	}
	cluster, ok := at.Place.(*meshkube.Cluster)
	if !ok {
		return nil, errors.New("it needs --source kube")
	}
	return &restart{session: &session{}, o: o, place: at, cluster: cluster, size: size, registry: newRegistry()}, nil
}

// open creates the Deployments and waits for their pods. What it returns removes them.
func (x *restart) open(ctx context.Context) (clear func(), err error) {
	x.watch = x.follow(ctx)
	clear = func() {
		x.watch.stop()
		x.o.say("removing the mesh from %s", x.place.name)
		_ = x.place.Clear() // the run is over; the next one will say so if something is left over
	}
	during, end := x.watch.during(ctx)
	defer end()
	if err := x.deploy(during); err != nil {
		clear()
		return nil, whyEnded(during, err)
	}
	return clear, nil
}

// watch has the registry follow the API server.
type watch struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // why it ended; to be read once ended is closed
}

func (x *restart) follow(ctx context.Context) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		w.err = x.cluster.WatchSlices(ctx, meshfiles.Namespace, func(s meshkube.Slice) { x.registry.take(s, time.Now()) })
	}()
	return w
}

func (w *watch) stop() {
	w.cancel()
	<-w.ended
}

// during gives a context that ends with the watch, as well: without it nothing can be told.
func (w *watch) during(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-w.ended:
			cancel(w.err)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// whyEnded is the cause of an error, where it is the end of a context.
func whyEnded(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

func (x *restart) name(i int) string { return fmt.Sprintf("shop-%d", i) }

func (x *restart) deploy(ctx context.Context) error {
	x.o.say("creating %d Deployments of %d pods", x.size.Deployments, x.size.Pods)
	for i := range x.size.Deployments {
		commit, err := x.place.Stage(x.name(i), deploymentYAML(x.name(i), x.size.Pods))
		if err == nil {
			err = commit()
		}
		if err != nil {
			return err
		}
	}
	return x.rollout(ctx, x.counts(x.size.Pods))
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

// rollout waits until the Deployments are rolled out and as many pods are ready.
func (x *restart) rollout(ctx context.Context, pods []int) error {
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

// join starts the control plane of a setting, or turns to the one beside, and connects the
// proxies. They are in a namespace of their own, where nothing changes. It returns when all of
// them have what the API server says.
func (x *restart) join(ctx context.Context, s setting) error {
	its := *x.o
	its.TLS = false
	if s.peer {
		its.Target, its.TargetPID = x.o.Peer.Address, x.o.Peer.PID
	}
	x.session = &session{opts: &its, place: x.place, env: s.env}
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
	if err := x.cp.await(ctx, x.cp.fleet.Open(), herdTime); err != nil {
		return err
	}
	state, err := x.settle(ctx)
	if err == nil && state.Wrong > 0 {
		err = fmt.Errorf("%s has not served what the API server says %s after the proxies connected: %s", s.name, settleTime, state.First[0])
	}
	return err
}

// observed makes it happen while the recorder looks, and compares final states.
func (x *restart) observed(ctx context.Context, happen func(context.Context) error) (state *FinalState, err error) {
	x.recorder = newRecorder("")
	if x.cp.process != nil {
		x.recorder = newRecorder(x.cp.process.HTTP())
	}
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

// again has a Deployment's pods replaced.
func (x *restart) again(ctx context.Context, i int) error {
	x.version++
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"%d"}}}}}`, x.version)
	return x.cluster.Patch(ctx, meshfiles.Namespace, x.name(i), patch)
}

// scale gives the last Deployment another number of pods.
func (x *restart) scale(ctx context.Context, pods int) error {
	x.scaled = pods != x.size.Pods
	return x.cluster.Patch(ctx, meshfiles.Namespace, x.name(x.size.Deployments-1), fmt.Sprintf(`{"spec":{"replicas":%d}}`, pods))
}

// settle compares what every proxy holds with the API server's EndpointSlices until they
// agree, or have had time enough to.
func (x *restart) settle(ctx context.Context) (*FinalState, error) {
	tick := time.NewTicker(settleTick)
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
