package index

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// deliveryWorld is an index, with automatic delivery from 8 services on, and open groups.
type deliveryWorld struct {
	t     *testing.T
	index *Index
	store *store.Store
}

func newDeliveryWorld(t *testing.T) *deliveryWorld {
	t.Helper()
	mesh := model.DefaultMesh()
	mesh.Delivery, mesh.OnDemandFrom = model.DeliverAuto, 8
	return &deliveryWorld{t, New(mesh), store.New()}
}

// apply reports whether proxies may change their group.
func (w *deliveryWorld) apply(events ...store.Event) bool {
	w.t.Helper()
	_, changes := w.store.Apply(events)
	return w.index.Rekey(w.index.Apply(changes)) != nil
}

func (w *deliveryWorld) put(objects ...model.Object) bool {
	w.t.Helper()
	var events []store.Event
	for _, o := range objects {
		events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
	}
	return w.apply(events...)
}

func (w *deliveryWorld) remove(o model.Object) bool {
	w.t.Helper()
	return w.apply(store.Event{Key: o.Metadata().Key})
}

// open opens the group of a proxy of a namespace, and returns its key.
func (w *deliveryWorld) open(namespace string) *GroupKey {
	out, _ := w.index.Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: namespace, OnDemand: true})
	w.index.Opened(&out)
	return &out
}

// onDemand reports what proxies of a namespace get.
func (w *deliveryWorld) onDemand(namespace string) bool {
	w.t.Helper()
	out, _ := w.index.Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: namespace, OnDemand: true})
	require.NotEqual(w.t, AsksNothing, out.Asking, "TCP proxies are the same in both modes")
	return out.OnDemand()
}

func (w *deliveryWorld) counts() (counts, groups int) {
	sizes := w.index.Sizes()
	return sizes["automatic.counts"], sizes["automatic.groups"]
}

func seenService(namespace string, i int) *model.Service {
	name := fmt.Sprint("s", i)
	return &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: namespace, Name: name}},
		Hostname: model.Host(name + "." + namespace + ".svc.cluster.local"),
	}
}

func narrowSidecar(hosts ...model.HostSelector) *model.Sidecar {
	return &model.Sidecar{
		Meta:   model.Meta{Key: model.Key{Kind: model.KindSidecar, Namespace: "narrow", Name: "default"}},
		Egress: []model.EgressListener{{Hosts: hosts}},
	}
}

var ownServices, allServices = model.HostSelector{Namespace: ".", Host: "*"}, model.HostSelector{Namespace: "*", Host: "*"}

// TestAutomaticDelivery changes how many services proxies see. Of two namespaces one has a Sidecar.
func TestAutomaticDelivery(t *testing.T) {
	w := newDeliveryWorld(t)
	w.put(narrowSidecar(ownServices))
	for i := range 7 {
		w.put(seenService("wide", i))
	}
	w.open("wide")
	w.open("narrow")
	require.False(t, w.onDemand("wide"))
	require.False(t, w.onDemand("narrow"))

	require.True(t, w.put(seenService("wide", 7)), "proxies change their group")
	require.True(t, w.onDemand("wide"))
	require.False(t, w.onDemand("narrow"), "it sees none of them")
	require.True(t, w.put(narrowSidecar(allServices)))
	require.True(t, w.onDemand("narrow"))
	w.put(narrowSidecar(ownServices))
	require.False(t, w.onDemand("narrow"))

	w.remove(seenService("wide", 7))
	require.False(t, w.remove(seenService("wide", 6)), "6 of 8 are in between")
	require.True(t, w.onDemand("wide"))
	require.True(t, w.remove(seenService("wide", 5)))
	require.False(t, w.onDemand("wide"))
	require.False(t, w.put(seenService("wide", 5)), "7 of 8 are in between")
	require.False(t, w.onDemand("wide"))

	for _, tt := range []struct {
		name  string
		proxy model.Proxy
		want  Asking
	}{
		{"a proxy's own setting precedes", model.Proxy{OnDemand: true, Delivery: model.DeliverOnDemand}, AsksForClusters},
		{"its own setting is full", model.Proxy{OnDemand: true, Delivery: model.DeliverFull}, AsksNothing},
		{"it cannot ask", model.Proxy{}, AsksNothing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.proxy.Type, tt.proxy.Namespace = model.ProxySidecar, "wide"
			out, _ := w.index.Keys(&tt.proxy)
			require.Equal(t, tt.want, out.Asking)
		})
	}
}

// TestAutomaticDeliverySettles exports all services and removes them, again and again: the proxies change their delivery a
// few times, and then get configuration on demand.
func TestAutomaticDeliverySettles(t *testing.T) {
	w := newDeliveryWorld(t)
	w.open("wide")
	changes := 0
	for range 20 {
		for _, change := range []func(*model.Service) bool{
			func(s *model.Service) bool { return w.put(s) }, func(s *model.Service) bool { return w.remove(s) },
		} {
			for i := range 8 {
				if change(seenService("wide", i)) {
					changes++
				}
			}
		}
	}
	require.True(t, w.onDemand("wide"))
	require.Equal(t, 11, changes, "returns below 6, 4, 3, 2 and 1 of 8")
}

// TestAutomaticDeliveryOfManyNamespaces opens the groups of more namespaces than a fixed bound could hold, between the two
// limits. All keep the decision that they had before, and the last group of a namespace takes it away.
func TestAutomaticDeliveryOfManyNamespaces(t *testing.T) {
	const namespaces = 5000
	w := newDeliveryWorld(t)
	for i := range 8 {
		w.put(seenService("wide", i))
	}
	ns := func(i int) string { return fmt.Sprint("n", i) }
	var open []*GroupKey
	for i := range namespaces {
		open = append(open, w.open(ns(i)))
	}
	require.False(t, w.remove(seenService("wide", 7)), "7 of 8 are in between")
	open = append(open, w.open(ns(0)))
	for i := range namespaces {
		require.True(t, w.onDemand(ns(i)), ns(i))
	}
	w.onDemand("refused") // its group is not opened
	w.put(seenService("narrow", 0))
	w.remove(seenService("narrow", 0))
	counts, groups := w.counts()
	require.Equal(t, []int{namespaces, namespaces}, []int{counts, groups})

	w.index.Closed(open[0])
	require.True(t, w.onDemand(ns(0)), "another group of the namespace is open")
	w.index.Closed(open[namespaces])
	require.False(t, w.onDemand(ns(0)), "a decision from the beginning")
	for _, k := range open[1:namespaces] {
		w.index.Closed(k)
	}
	w.put(seenService("narrow", 0))
	counts, groups = w.counts()
	require.Zero(t, counts+groups)
}

// TestAutomaticDeliveryKeepsDecisions checks what must not change the decision of an open group: a group of the same proxies
// that takes its place, a setting that needs no decision, and a Sidecar that is gone for a while.
func TestAutomaticDeliveryKeepsDecisions(t *testing.T) {
	w := newDeliveryWorld(t)
	w.put(narrowSidecar(allServices))
	for i := range 7 {
		w.put(seenService("wide", i))
	}
	full := w.open("narrow")
	require.Equal(t, MayAskLater, full.Asking)
	require.True(t, w.put(seenService("wide", 7)))
	asking := w.open("narrow")
	require.Equal(t, AsksForClusters, asking.Asking)
	w.index.Closed(full)
	w.remove(seenService("wide", 7))
	require.True(t, w.onDemand("narrow"))

	namespace := func(d model.Delivery) *model.Namespace {
		return &model.Namespace{Meta: model.Meta{Key: model.Key{Kind: model.KindNamespace, Name: "narrow"}}, Delivery: d}
	}
	w.put(namespace(model.DeliverOnDemand))
	w.put(namespace(""))
	require.True(t, w.onDemand("narrow"))

	w.remove(narrowSidecar())
	w.remove(seenService("wide", 6))
	w.remove(seenService("wide", 5))
	w.put(seenService("wide", 6))
	w.put(narrowSidecar(allServices))
	require.True(t, w.onDemand("narrow"), "6 services again")
}
