package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestPodsComeAndGo follows an endpoint through the life of its Pod, which comes after the slice that names
// it and goes before.
func TestPodsComeAndGo(t *testing.T) {
	st, d := store.New(), New(model.DefaultMesh(), 1)
	held := newDelta()
	put := func(events ...store.Event) {
		_, changes := st.Apply(events)
		for _, delta := range d.Apply(changes).Deltas {
			merge(held, delta)
		}
	}
	web := &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}},
		Hostname: "web.shop.svc.cluster.local", Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}},
	}
	slice := &model.EndpointSlice{
		Meta:    model.Meta{Key: model.Key{Kind: model.KindEndpointSlice, Namespace: "shop", Name: "web-1"}},
		Service: "web", PodsListed: true, Ports: []model.SlicePort{{Name: "http", Number: 8080}},
		Members: []model.SliceEndpoint{{Addresses: []string{"10.1.0.1"}, Ready: true, Pod: "web-a"}},
	}
	pod := &model.Workload{
		Meta:      model.Meta{Key: model.Key{Kind: model.KindPod, Namespace: "shop", Name: "web-a"}, Labels: map[string]string{model.LabelTLSMode: "istio"}},
		Addresses: []string{"10.1.0.1"}, Ready: true,
	}
	outbound, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "shop"})
	merge(held, d.Open(outbound))
	endpoints := func() (out []string) {
		for _, l := range held.Endpoints["outbound|80||web.shop.svc.cluster.local"].Localities {
			for _, e := range l.Endpoints {
				require.True(t, e.MTLS, "%s is called in plaintext", e.Address)
				out = append(out, e.Address)
			}
		}
		return out
	}
	put(store.Event{Key: web.Key, Object: web}, store.Event{Key: slice.Key, Object: slice})
	require.Empty(t, endpoints())
	put(store.Event{Key: pod.Key, Object: pod})
	require.Equal(t, []string{"10.1.0.1"}, endpoints())
	put(store.Event{Key: pod.Key})
	require.Empty(t, endpoints())
}
