package gatewaydeploy

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// maxParameterWatches bounds the watches of one namespace, whose users choose the number of Gateways. Changes of further ConfigMaps
// take effect with the next change of their Gateway.
const maxParameterWatches = 100

// parameterWatches are the watches of ConfigMaps that Gateways name, one for each. Only the watch of Gateways calls it.
type parameterWatches struct {
	*term
	named   map[types.NamespacedName]types.NamespacedName // Gateway -> ConfigMap
	watches map[types.NamespacedName]*parameterWatch      // by ConfigMap
	running map[string]int                                // watches by namespace
}

type parameterWatch struct {
	gateways int                // that name the ConfigMap
	stop     context.CancelFunc // nil: it does not run, for lack of room in its namespace
}

func newParameterWatches(t *term) *parameterWatches {
	return &parameterWatches{
		term: t, named: map[types.NamespacedName]types.NamespacedName{}, watches: map[types.NamespacedName]*parameterWatch{}, running: map[string]int{},
	}
}

// follow starts and ends watches, as a Gateway names a ConfigMap now.
func (w *parameterWatches) follow(ctx context.Context, gateway types.NamespacedName) {
	was, now := w.named[gateway], types.NamespacedName{}
	if name := w.inventory.parametersOf(gateway); name != "" {
		now = types.NamespacedName{Namespace: gateway.Namespace, Name: name}
	}
	if was == now {
		return
	}
	if now.Name == "" {
		delete(w.named, gateway)
	} else {
		w.named[gateway] = now
		w.addUser(ctx, now)
	}
	if was.Name != "" {
		w.removeUser(ctx, was)
	}
}

func (w *parameterWatches) addUser(ctx context.Context, n types.NamespacedName) {
	p := w.watches[n]
	if p == nil {
		p = &parameterWatch{}
		w.watches[n] = p
		if w.running[n.Namespace] < maxParameterWatches {
			w.run(ctx, n, p)
		} else {
			w.Log.Warn("too many ConfigMaps of gateways in a namespace: changes of this one take effect with its Gateway's next change",
				"configmap", n.String(), "limit", maxParameterWatches)
		}
	}
	p.gateways++
}

func (w *parameterWatches) removeUser(ctx context.Context, n types.NamespacedName) {
	p := w.watches[n]
	if p.gateways--; p.gateways > 0 {
		return
	}
	delete(w.watches, n)
	if p.stop == nil {
		return
	}
	p.stop()
	w.running[n.Namespace]--
	if w.running[n.Namespace] == 0 {
		delete(w.running, n.Namespace)
	}
	for other, waiting := range w.watches { // there is room for one more
		if other.Namespace == n.Namespace && waiting.stop == nil {
			w.run(ctx, other, waiting)
			return
		}
	}
}

// run watches a ConfigMap until ctx ends or the watch is stopped.
func (w *parameterWatches) run(ctx context.Context, n types.NamespacedName, p *parameterWatch) {
	ctx, p.stop = context.WithCancel(ctx)
	w.running[n.Namespace]++
	changed := func() {
		w.add(w.inventory.gatewaysWith(func(g types.NamespacedName, s seenGateway) bool {
			return g.Namespace == n.Namespace && s.parameters == n.Name
		}))
	}
	w.start(ctx, &watched{
		resource: configMaps, namespace: n.Namespace, fields: "metadata.name=" + n.Name,
		handler: handler{Upsert: func(*unstructured.Unstructured) { changed() }, Remove: func(types.NamespacedName) { changed() }},
	})
}
