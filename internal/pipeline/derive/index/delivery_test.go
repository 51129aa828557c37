package index

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestAutomaticDelivery changes how many services proxies see. Of two namespaces one has a Sidecar.
func TestAutomaticDelivery(t *testing.T) {
	mesh := model.DefaultMesh()
	mesh.Delivery, mesh.OnDemandFrom = model.DeliverAuto, 8
	x, s := New(mesh), store.New()
	apply := func(objects ...model.Object) bool {
		var events []store.Event
		for _, o := range objects {
			events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
		}
		_, changes := s.Apply(events)
		return x.Rekey(x.Apply(changes)) != nil
	}
	service := func(namespace string, i int) *model.Service {
		name := fmt.Sprint("s", i)
		return &model.Service{
			Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: namespace, Name: name}},
			Hostname: model.Host(name + "." + namespace + ".svc.cluster.local"),
		}
	}
	remove := func(namespace string, i int) bool {
		_, changes := s.Apply([]store.Event{{Key: service(namespace, i).Key}})
		return x.Rekey(x.Apply(changes)) != nil
	}
	onDemand := func(namespace string) bool {
		out, _ := x.Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: namespace, OnDemand: true})
		require.Equal(t, !out.OnDemand, out.AsksTCP, "TCP proxies are the same in both modes")
		return out.OnDemand
	}
	narrow := func(hosts ...model.HostSelector) *model.Sidecar {
		return &model.Sidecar{
			Meta:   model.Meta{Key: model.Key{Kind: model.KindSidecar, Namespace: "narrow", Name: "default"}},
			Egress: []model.EgressListener{{Hosts: hosts}},
		}
	}
	own, all := model.HostSelector{Namespace: ".", Host: "*"}, model.HostSelector{Namespace: "*", Host: "*"}
	apply(narrow(own))
	for i := range 7 {
		apply(service("wide", i))
	}
	require.False(t, onDemand("wide"))
	require.False(t, onDemand("narrow"))

	require.True(t, apply(service("wide", 7)), "proxies change their group")
	require.True(t, onDemand("wide"))
	require.False(t, onDemand("narrow"), "it sees none of them")
	require.True(t, apply(narrow(all)))
	require.True(t, onDemand("narrow"))
	apply(narrow(own))
	require.False(t, onDemand("narrow"))

	remove("wide", 7)
	require.False(t, remove("wide", 6), "6 of 8 are in between")
	require.True(t, onDemand("wide"))
	require.True(t, remove("wide", 5))
	require.False(t, onDemand("wide"))
	require.False(t, apply(service("wide", 5)), "7 of 8 are in between")
	require.False(t, onDemand("wide"))

	out, _ := x.Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "wide", OnDemand: true, Delivery: model.DeliverOnDemand})
	require.True(t, out.OnDemand, "a proxy's own setting precedes")
	out, _ = x.Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "wide", OnDemand: true, Delivery: model.DeliverFull})
	require.False(t, out.OnDemand || out.AsksTCP)
	out, _ = x.Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "wide"})
	require.False(t, out.OnDemand || out.AsksTCP, "it cannot ask")
}
