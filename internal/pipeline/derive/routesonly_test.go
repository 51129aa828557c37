package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestOriginsOfRoutesOnly checks what the virtual host of a name that is no service is made from: of the services that its
// virtual service names, only the one because of which it exists at a port. A change of the others still takes effect.
func TestOriginsOfRoutesOnly(t *testing.T) {
	at := func(numbers ...uint32) func(*model.Service) {
		return func(s *model.Service) {
			s.Ports, s.Addresses = nil, nil
			for _, n := range numbers {
				s.Ports = append(s.Ports, model.ServicePort{Name: "http", Number: n, Protocol: model.ProtocolHTTP})
			}
		}
	}
	first, second := serviceOf("first", "1", at(8080, 9090)), serviceOf("second", "1", at(8080))
	v := &model.VirtualService{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "all"}, ResourceVersion: "1"},
		Hosts:    []model.Host{first.Hostname, second.Hostname, "plain.example.com"},
		Gateways: []string{model.GatewayMesh},
		HTTP:     []model.HTTPRoute{{DirectResponse: &model.DirectResponse{Status: 204}}},
	}
	st, d := store.New(), New(model.DefaultMesh(), 1)
	apply := func(objects ...model.Object) Update {
		var events []store.Event
		for _, o := range objects {
			events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
		}
		_, changes := st.Apply(events)
		return d.Apply(changes)
	}
	apply(first, second, serviceOf("listens", "1", at(80)), v)
	key, _ := d.Index().Keys(webProxy("shop", "web", true))
	got := d.Open(key).VirtualHosts
	for name, want := range map[string][]model.Key{
		"80/plain.example.com:80":     {v.Key},
		"8080/plain.example.com:8080": {v.Key},
		"9090/plain.example.com:9090": {first.Key, v.Key},
	} {
		require.Contains(t, got, name)
		require.ElementsMatch(t, want, got[name].Origins.Keys(), name)
	}

	delta := apply(serviceOf("second", "2", at(8080, 7070))).Deltas[key]
	require.Contains(t, delta.VirtualHosts, "7070/plain.example.com:7070")
	require.ElementsMatch(t, []model.Key{second.Key, v.Key}, delta.VirtualHosts["7070/plain.example.com:7070"].Origins.Keys())
}
