package cluster

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/lab/fleet"
	"github.com/moonsail/moonsail/internal/lab/propagation/rollout"
	"github.com/moonsail/moonsail/test/kubetest"
)

var (
	outageSize  = flag.String("outage-size", "6x3x8", "Deployments x pods x proxies of the test of outages under rolling restarts; Airbnb's is 50x10x100")
	outageKills = flag.Int("outage-kills", 3, "how often that test kills the API server")
	outageEvery = flag.Duration("outage-every", 100*time.Millisecond, "how often a route changes in that test; each fourth time a Deployment restarts, too")
)

const outageDeployment = `
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {selector: {app: %[1]s}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: app, image: app}]}
`

const outageRoute = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s}
spec: {hosts: [%[1]s], http: [{headers: {request: {set: {x-version: "%[2]d"}}}, route: [{destination: {host: %[1]s}}]}]}
`

// outage is a mesh of real Deployments that restart while routes change and the API server is killed, with connected
// proxies.
type outage struct {
	t    *testing.T
	c    *kubetest.Cluster
	ns   string
	size rollout.Size
	seed uint64
	xds  string

	fleet    *fleet.Fleet
	record   record
	restarts atomic.Int64 // that the API server has accepted
	routes   atomic.Int64 // as above
}

// TestRolloutsThroughOutages kills the API server repeatedly while Deployments restart and routes change. No proxy may
// lose a cluster, listener, route or virtual host that was not deleted, nor all endpoints of a service, since none is
// ever without. At the end each must have what the API server has, and the same as a proxy that connects then.
func TestRolloutsThroughOutages(t *testing.T) {
	size, err := rollout.ParseSize(*outageSize)
	require.NoError(t, err)
	o := &outage{t: t, c: kubetest.Alone(t), size: size, seed: uint64(time.Now().UnixNano())}
	t.Logf("seed %d", o.seed)
	o.ns = o.c.Namespace(t)
	o.deploy()
	var url string
	o.xds, url = serve(t, o.c)
	require.Eventually(t, func() bool { return ready(t, url) }, patience, 10*time.Millisecond)
	o.fleet = o.connect(fleet.NewCatalog(), size.Proxies)
	o.settle()
	for _, p := range o.fleet.Proxies {
		p.Tape(func(k fleet.Kind, b []byte) { o.record.take(p.Name, k, b) })
	}

	ctx, stop := context.WithCancel(context.Background())
	var changing sync.WaitGroup
	changing.Go(func() { o.change(ctx) })
	defer changing.Wait()
	defer stop()
	for n := range *outageKills {
		o.progress()
		o.c.Kill()
		o.duringOutage(n)
		o.restartMissing(n)
	}
	o.progress()
	stop()
	changing.Wait()
	o.rolledOut()
	o.settle()
	o.likeFresh()
	lost, fewest, responses := o.record.told()
	t.Logf("%d kills, %d restarts of Deployments, %d routes, %d responses; fewest ready endpoints of a service at any proxy: %d of %d",
		*outageKills, o.restarts.Load(), o.routes.Load(), responses, fewest, size.Pods)
	require.Empty(t, lost)
	require.Positive(t, fewest, "endpoints have come, and were counted")
}

func (o *outage) name(i int) string { return fmt.Sprintf("app-%d", i) }

func (o *outage) deploy() {
	for i := range o.size.Deployments {
		o.c.Apply(o.t, o.ns, fmt.Sprintf(outageDeployment, o.name(i), o.size.Pods)+"---"+fmt.Sprintf(outageRoute, o.name(i), 0))
	}
	for n := range *outageKills {
		o.c.Apply(o.t, o.ns, fmt.Sprintf(outageGone, fmt.Sprint(mayGo, n)))
	}
	o.rolledOut()
}

// mayGo is the prefix of services that are deleted.
const mayGo = "goes-"

const outageGone = "{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {ports: [{name: http, port: 80}]}}"

// restartMissing starts the API server again and at once changes and deletes objects, before the control plane has
// reconnected, so that no watch reports the changes.
func (o *outage) restartMissing(n int) {
	o.t.Helper()
	var missing sync.WaitGroup
	until := func(try func(context.Context) error) {
		missing.Go(func() {
			for try(o.t.Context()) != nil && o.t.Context().Err() == nil {
				<-time.After(time.Millisecond)
			}
		})
	}
	until(func(ctx context.Context) error {
		return o.c.TryApply(ctx, o.ns, fmt.Sprintf(outageRoute, o.name(o.size.Deployments-1), 1_000_000+n))
	})
	until(func(ctx context.Context) error {
		return o.c.Client.CoreV1().Services(o.ns).Delete(ctx, fmt.Sprint(mayGo, n), metav1.DeleteOptions{})
	})
	o.c.Restart(o.t)
	missing.Wait()
}

// rolledOut waits until all pods have the newest template, are ready, and are listed in slices.
func (o *outage) rolledOut() {
	o.t.Helper()
	for i := range o.size.Deployments {
		o.c.Eventually(o.t, o.name(i)+" is rolled out", func(ctx context.Context) error {
			d, err := o.c.Client.AppsV1().Deployments(o.ns).Get(ctx, o.name(i), metav1.GetOptions{})
			if err != nil {
				return err
			}
			s, want := d.Status, int32(o.size.Pods)
			if s.ObservedGeneration != d.Generation || s.Replicas != want || s.UpdatedReplicas != want || s.AvailableReplicas != want {
				return fmt.Errorf("%+v", s)
			}
			all, err := o.c.Endpoints(ctx, o.ns, o.name(i))
			if err == nil && len(all) != o.size.Pods {
				err = fmt.Errorf("%d endpoints", len(all))
			}
			return err
		})
	}
}

// connect connects n proxies, in turn in the Deployments' namespace and another one, and returns when each has all its
// resources.
func (o *outage) connect(c *fleet.Catalog, n int) *fleet.Fleet {
	o.t.Helper()
	var ids []fleet.Identity
	for i := range n {
		ns := []string{o.ns, "elsewhere"}[i%2]
		ids = append(ids, fleet.Identity{Namespace: ns, Name: fmt.Sprintf("client-%d", i), IP: fmt.Sprintf("10.9.%d.%d", i>>8, i&255)})
	}
	f := fleet.NewFleet(c, fleet.Options{Address: o.xds}, ids)
	f.Start(context.Background())
	o.t.Cleanup(f.Stop)
	o.awaitAll(f.Open())
	return f
}

func (o *outage) awaitAll(round *fleet.Round) {
	o.t.Helper()
	select {
	case <-round.Done():
	case <-time.After(patience):
		require.Fail(o.t, "proxies have not got there", "%d of them", round.Left())
	}
}

// change restarts Deployments and changes the routes of all but the last one at fixed intervals, until ctx ends. It
// ignores errors while the API server is down.
func (o *outage) change(ctx context.Context) {
	random := rand.New(rand.NewPCG(o.seed, 1))
	tick := time.NewTicker(*outageEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		step, cancel := context.WithTimeout(ctx, time.Second)
		if o.c.TryApply(step, o.ns, fmt.Sprintf(outageRoute, o.name(random.IntN(o.size.Deployments-1)), n)) == nil {
			o.routes.Add(1)
		}
		if n%4 == 0 && o.restart(step, o.name(random.IntN(o.size.Deployments)), n) == nil {
			o.restarts.Add(1)
		}
		cancel()
	}
}

func (o *outage) restart(ctx context.Context, name string, n int) error {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"%d"}}}}}`, n)
	_, err := o.c.Client.AppsV1().Deployments(o.ns).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// progress waits until the API server has accepted changes, and proxies have received as many.
func (o *outage) progress() {
	o.t.Helper()
	routes, restarts, before := o.routes.Load(), o.restarts.Load(), fleet.Total(o.fleet.Traffic()).Messages
	require.Eventually(o.t, func() bool {
		sent := fleet.Total(o.fleet.Traffic()).Messages - before
		return o.routes.Load() > routes+8 && o.restarts.Load() > restarts+1 && sent > int64(8*len(o.fleet.Proxies))
	}, patience, 10*time.Millisecond)
}

// duringOutage connects proxies while the API server is down: new ones must get what the others have. In each second
// outage all others reconnect.
func (o *outage) duringOutage(n int) {
	o.t.Helper()
	if n%2 == 1 {
		o.fleet.Shut()
		o.fleet.Disconnect()
		o.awaitAll(o.fleet.Open())
	}
	o.likeFresh()
}

// likeFresh compares proxies with new ones.
func (o *outage) likeFresh() {
	o.t.Helper()
	fresh := o.connect(o.fleet.Catalog, 2)
	defer fresh.Stop()
	var diff []string
	require.Eventually(o.t, func() bool {
		diff = nil
		for i, p := range o.fleet.Proxies {
			diff = append(diff, p.Differs(fresh.Proxies[i%2], 3, nil)...)
		}
		return len(diff) == 0
	}, patience, 50*time.Millisecond, "%v", &diff)
}
