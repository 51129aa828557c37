package gatewaydeploy

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/source/kube"
)

// watched is a set of objects that is watched.
type watched struct {
	resource                  schema.GroupVersionResource
	namespace, labels, fields string // restrictions; empty: none
	handler
}

type handler = kube.Handler[*unstructured.Unstructured]

// watch starts all watches. They end with ctx.
func (t *term) watch(ctx context.Context) {
	all := []*watched{t.gatewayWatch(ctx), t.classWatch(), {
		resource: configMaps, namespace: t.RootNamespace, labels: labelClassDefaults, handler: handler{
			Upsert: func(*unstructured.Unstructured) { t.addDeployed() }, Remove: func(types.NamespacedName) { t.addDeployed() },
			Listed: t.lists.await("configmaps"),
		},
	}}
	for i := range kinds {
		all = append(all, t.children(kinds[i].resource))
	}
	for _, w := range all { // after all lists are awaited
		t.start(ctx, w)
	}
}

// gatewayWatch watches Gateways, and starts and ends the watches of their ConfigMaps.
func (t *term) gatewayWatch(ctx context.Context) *watched {
	parameters := newParameterWatches(t)
	return &watched{
		resource: gateways, handler: handler{Listed: t.lists.await("gateways"),
			Upsert: func(o *unstructured.Unstructured) {
				if t.inventory.seeGateway(o) {
					t.queue.Add(nameOf(o))
					parameters.follow(ctx, nameOf(o))
				}
			},
			Remove: func(n types.NamespacedName) {
				t.inventory.forgetGateway(n)
				t.queue.Add(n)
				parameters.follow(ctx, n)
			},
		}}
}

// classWatch creates deleted GatewayClasses again.
func (t *term) classWatch() *watched {
	return &watched{
		resource: gatewayClasses, handler: handler{Listed: t.lists.await("gatewayclasses"), Upsert: func(*unstructured.Unstructured) {},
			Remove: func(n types.NamespacedName) {
				if gatewayapi.ControllerOf(n.Name) != "" {
					t.queue.Add(n)
				}
			},
		}}
}

// addDeployed queues the Gateways of our classes: the defaults of a class changed.
func (t *term) addDeployed() {
	t.add(t.inventory.gatewaysWith(func(_ types.NamespacedName, g seenGateway) bool { return gatewayapi.ControllerOf(g.class) != "" }))
}

// children watches the objects of Gateways of one kind.
func (t *term) children(r schema.GroupVersionResource) *watched {
	return &watched{
		resource: r, labels: labelManaged, handler: handler{Listed: t.lists.await(r.Resource),
			Upsert: func(o *unstructured.Unstructured) {
				if of, changed := t.inventory.seeChild(r, o); changed {
					t.queue.Add(of)
				}
			},
			Remove: func(n types.NamespacedName) {
				t.inventory.forgetChild(childKey{r, n.Namespace, n.Name})
				// Its name is free for each Gateway of the namespace, and several may have shared a ServiceAccount.
				t.add(t.inventory.gatewaysWith(func(g types.NamespacedName, _ seenGateway) bool { return g.Namespace == n.Namespace }))
			},
		}}
}

// uninstalledPause precedes the next request while the Gateway API is not installed.
const uninstalledPause = 10 * time.Second

// start runs a watch until ctx ends.
func (t *term) start(ctx context.Context, w *watched) {
	api := t.dynamic.Resource(w.resource).Namespace(w.namespace)
	failing := &failure{term: t, resource: w.resource}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = w.labels, w.fields
			list, err := api.List(ctx, o)
			failing.record(ctx, err)
			if apierrors.IsNotFound(err) {
				_ = clock.Sleep(ctx, uninstalledPause) // the end of ctx ends the watch, too
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = w.labels, w.fields
			stream, err := api.Watch(ctx, o)
			failing.record(ctx, err)
			return stream, err
		},
	}
	t.watching.Go(func() { kube.Watch(ctx, w.resource.Resource, lw, &unstructured.Unstructured{}, w.handler) })
}

// failure logs an error of a watch once, until a request succeeds.
type failure struct {
	*term
	resource schema.GroupVersionResource
	errors   logonce.Errors
}

func (f *failure) record(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil, apierrors.IsResourceExpired(err), apierrors.IsGone(err), !f.errors.New(err):
	case apierrors.IsNotFound(err):
		f.Log.Info("gateways are not deployed until the Gateway API is installed", "resource", f.resource.GroupResource().String())
	case apierrors.IsForbidden(err):
		f.Log.Warn("no permission to deploy gateways, retrying: "+kube.GrantRights, "resource", f.resource.GroupResource().String(), "error", err)
	default:
		f.Log.Warn("cannot watch objects of gateways, retrying", "resource", f.resource.GroupResource().String(), "error", err)
	}
}

// lists waits until everything was listed once.
type lists struct {
	mu      sync.Mutex // guards missing
	missing map[string]bool
	done    chan struct{} // closed when nothing is missing
}

func newLists() *lists { return &lists{missing: map[string]bool{}, done: make(chan struct{})} }

// await adds a list, and returns the function to call when it is complete. All are added before the first is complete.
func (l *lists) await(what string) (listed func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missing[what] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.missing[what] {
			return
		}
		if delete(l.missing, what); len(l.missing) == 0 {
			close(l.done)
		}
	}
}

// wait returns false if ctx ends first.
func (l *lists) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-l.done:
		return true
	}
}
