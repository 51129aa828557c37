package derive

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/view"
)

// TestMeshConnections: what the mesh says of connections reaches clusters and listeners that are there.
func TestMeshConnections(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	put(d, nil, &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}},
		Hostname: "web.shop.svc.cluster.local", Addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/32")}, Selector: map[string]string{"app": "web"},
		Ports: []model.ServicePort{{Number: 80, TargetPort: 8080, Protocol: model.ProtocolAuto}}, Resolution: model.ResolutionStatic,
	})
	outbound, inbound := d.Index().Keys(webProxy("shop", "web", true))
	before := d.Open(outbound).Listeners["10.9.0.1_80"]
	require.True(t, before.ContinueOnTimeout)
	require.Equal(t, inspectTimeout, before.InspectTimeout)
	d.Open(inbound)

	config := func(detection time.Duration) *model.MeshConfig {
		refresh := time.Hour
		return &model.MeshConfig{
			Meta:      model.Meta{Key: model.Key{Kind: model.KindMeshConfig, Namespace: "istio-system", Name: model.MeshConfigName}},
			Keepalive: &model.TCPKeepalive{Probes: 7}, DNSRefresh: &refresh, DetectionTimeout: &detection,
		}
	}
	some := config(time.Second)
	deltas := put(d, nil, some).Deltas
	for _, name := range []string{"outbound|80||web.shop.svc.cluster.local", view.PassthroughCluster} {
		require.Equal(t, some.Keepalive, deltas[outbound].Clusters[name].Keepalive, name)
	}
	require.Equal(t, time.Hour, deltas[outbound].Clusters["outbound|80||web.shop.svc.cluster.local"].DNSRefresh)
	for _, name := range []string{"inbound|8080||", view.InboundPassthroughCluster} {
		require.Equal(t, some.Keepalive, deltas[inbound].Clusters[name].Keepalive, name)
	}
	require.Equal(t, time.Second, deltas[outbound].Listeners["10.9.0.1_80"].InspectTimeout)
	require.Equal(t, time.Second, deltas[inbound].Listeners["virtualInbound"].InspectTimeout)

	forever := put(d, some, config(0)).Deltas
	require.True(t, forever[outbound].Listeners["10.9.0.1_80"].InspectForever)
	require.True(t, forever[inbound].Listeners["virtualInbound"].InspectForever)
	require.False(t, put(d, some, nil).Deltas[outbound].Listeners["10.9.0.1_80"].InspectForever)
}
