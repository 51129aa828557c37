package rollout

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
	"github.com/moonsail/moonsail/internal/lab/propagation/results"
	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

// Time limits of rollouts.
const (
	rolloutTime = 10 * time.Minute
	rolloutPoll = 250 * time.Millisecond
	settleTime  = 30 * time.Second // for the proxies, after the last event of the API server
)

// restart has Deployments in an API server, and a control plane whose proxies see their services. Each measurement
// starts a new control plane.
type restart struct {
	*session.Session // of the current measurement
	o                *Options
	place            session.Location
	cluster          *meshkube.Cluster
	size             Size
	registry         *registry
	watch            *watch
	recorder         *recorder
	scaled           bool // the last Deployment is scaled down
	version          int  // of the last restart
}

// newRestart needs a place in an API server.
func newRestart(ctx context.Context, o *Options, dir string, size Size) (*restart, error) {
	at, err := session.NewLocation(ctx, &o.Config, dir)
	if err != nil {
		return nil, err
	}
	cluster, ok := at.Place.(*meshkube.Cluster)
	if !ok {
		return nil, errors.New("needs --source kube")
	}
	return &restart{Session: &session.Session{}, o: o, place: at, cluster: cluster, size: size, registry: newRegistry()}, nil
}

// open creates the Deployments and waits for their pods. clear removes them.
func (x *restart) open(ctx context.Context) (clear func(), err error) {
	x.watch = x.follow(ctx)
	clear = func() {
		x.watch.stop()
		x.o.Stepf("removing the mesh from %s", x.place.Name)
		_ = x.place.Clear() // the next run reports what is left
	}
	during, end := x.watch.during(ctx)
	defer end()
	if err := x.deploy(during); err != nil {
		clear()
		return nil, whyEnded(during, err)
	}
	return clear, nil
}

// watch records the API server's EndpointSlices in the registry.
type watch struct {
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // why it ended; valid after ended is closed
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

// during returns a context that also ends with the watch: without the watch there is no result.
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

// whyEnded returns the cause of the context's end if it has ended, else err.
func whyEnded(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

func (x *restart) name(i int) string { return fmt.Sprintf("shop-%d", i) }

func (x *restart) deploy(ctx context.Context) error {
	x.o.Stepf("creating %d Deployments of %d pods", x.size.Deployments, x.size.Pods)
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

// counts returns the number of pods of each Deployment, of which the last one differs.
func (x *restart) counts(last int) []int {
	out := slices.Repeat([]int{x.size.Pods}, x.size.Deployments)
	out[len(out)-1] = last
	return out
}

// rollout waits until all Deployments are rolled out and have that many ready pods.
func (x *restart) rollout(ctx context.Context, pods []int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, rolloutTime, fmt.Errorf("the rollout did not end within %s", rolloutTime))
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

// join starts the control plane of a setting, or chooses the peer, and connects the proxies. Their namespace is one
// in which nothing changes. It returns when all of them have the state of the API server.
func (x *restart) join(ctx context.Context, s setting) error {
	its := x.o.Config
	its.TLS = false
	if s.peer {
		its.External, its.ExternalPID = x.o.Peer.Address, x.o.Peer.PID
	}
	x.Session = &session.Session{Config: &its, Location: x.place, Env: s.env}
	if err := x.StartControlPlane(ctx, session.AnyPort, session.AnyPort); err != nil {
		return err
	}
	for i := range x.size.Proxies {
		ip := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		x.IDs = append(x.IDs, fleet.Identity{Namespace: "clients", Name: fmt.Sprintf("client-%d", i), IP: ip.String()})
	}
	catalog := fleet.NewCatalog()
	catalog.Follow()
	x.CP.Fleet = fleet.NewFleet(catalog, fleet.Options{Address: x.CP.Address()}, x.IDs)
	x.CP.Fleet.Start(ctx)
	if err := x.CP.Await(ctx, x.CP.Fleet.Open(), session.ConnectTime); err != nil {
		return err
	}
	state, err := x.settle(ctx)
	if err == nil && state.Wrong > 0 {
		err = fmt.Errorf("%s: differs from the API server %s after the proxies connected: %s", s.name, settleTime, state.First[0])
	}
	return err
}

// observed calls happen while the recorder reads, and then compares the final state.
func (x *restart) observed(ctx context.Context, happen func(context.Context) error) (state *results.FinalState, err error) {
	x.recorder = newRecorder("")
	if x.CP.Process != nil {
		x.recorder = newRecorder(x.CP.Process.HTTP())
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

// again restarts a Deployment.
func (x *restart) again(ctx context.Context, i int) error {
	x.version++
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"%d"}}}}}`, x.version)
	return x.cluster.Patch(ctx, meshfiles.Namespace, x.name(i), patch)
}

// scale sets the number of pods of the last Deployment.
func (x *restart) scale(ctx context.Context, pods int) error {
	x.scaled = pods != x.size.Pods
	return x.cluster.Patch(ctx, meshfiles.Namespace, x.name(x.size.Deployments-1), fmt.Sprintf(`{"spec":{"replicas":%d}}`, pods))
}

// settle compares the endpoints of every proxy with the API server's EndpointSlices until they agree, at most for
// settleTime.
func (x *restart) settle(ctx context.Context) (*results.FinalState, error) {
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

func (x *restart) compare(ctx context.Context) (*results.FinalState, error) {
	list, _, err := x.cluster.Slices(ctx, meshfiles.Namespace)
	if err != nil {
		return nil, err
	}
	said := newRegistry()
	for _, s := range list {
		said.take(s, time.Now())
	}
	out := &results.FinalState{Proxies: len(x.CP.Fleet.Proxies)}
	for i := range x.size.Deployments {
		want := said.ready(x.name(i))
		out.Decoded += len(want)
		for _, p := range x.CP.Fleet.Proxies {
			if has := p.Endpoints()[meshfiles.ClusterName(x.name(i))]; !slices.Equal(has, want) {
				out.AddWrong("%s: has %d endpoints of %s, the API server has %d or others", p.Name, len(has), x.name(i), len(want))
			}
		}
	}
	return out, nil
}
