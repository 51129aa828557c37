package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestIngressTellsService: what a Sidecar says of a port does not hide whose it is.
func TestIngressTellsService(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	st := store.New()
	apply := func(events ...store.Event) map[GroupKey]*Delta {
		_, changes := st.Apply(events)
		return d.Apply(changes).Deltas
	}
	service := &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}, ResourceVersion: "1"},
		Hostname: "web.shop.svc.cluster.local", Selector: map[string]string{"app": "web"},
		Ports: []model.ServicePort{{Number: 80, TargetPort: 8080, Protocol: model.ProtocolHTTP}},
	}
	sidecar := &model.Sidecar{
		Meta: model.Meta{Key: model.Key{Kind: model.KindSidecar, Namespace: "shop", Name: "web"}, ResourceVersion: "1"},
		Ingress: []model.IngressListener{
			{Port: model.SidecarPort{Number: 8080, Protocol: model.ProtocolHTTP}}, {Port: model.SidecarPort{Number: 9090, Protocol: model.ProtocolHTTP}},
		},
	}
	apply(store.Event{Key: sidecar.Key, Object: sidecar})
	_, in := d.Index().Keys(webProxy("shop", "web", true))
	require.Empty(t, d.Open(in).Clusters["inbound|8080||"].Service)
	delta := apply(store.Event{Key: service.Key, Object: service})[in]
	require.NotNil(t, delta, "a service that comes is seen")
	require.Equal(t, ir.ServiceRef{Host: service.Hostname, Name: "web", Namespace: "shop"}, delta.Clusters["inbound|8080||"].Service)
	require.Empty(t, delta.Clusters["inbound|9090||"].Service, "no service reaches the workload there")
}

// TestAnyWorker: connections are spread over a sidecar's workers unless it says that they need not
// be, by which outbound scopes do not differ.
func TestAnyWorker(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	key := func(anyWorker bool) (outbound, inbound GroupKey) {
		return d.Index().Keys(&model.Proxy{
			Type: model.ProxySidecar, Namespace: "shop", Name: "a", IPs: []string{"10.0.0.1"}, AnyWorker: anyWorker,
		})
	}
	for _, anyWorker := range []bool{false, true} {
		_, in := key(anyWorker)
		require.Equal(t, !anyWorker, d.Open(in).Listeners["virtualInbound"].ExactBalance)
	}
	first, _ := key(false)
	second, _ := key(true)
	require.Equal(t, first, second)
}
