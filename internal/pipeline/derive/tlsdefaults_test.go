package derive

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestTLSDefaults: the mesh's reach clusters, routers' servers and Sidecars' listeners that are there.
func TestTLSDefaults(t *testing.T) {
	_, d := ingressMesh(t, "shop", nil, &model.Gateway{
		Meta: model.Meta{Key: model.Key{Kind: model.KindGateway, Namespace: "shop", Name: "edge"}, ResourceVersion: "1"},
		Servers: []model.GatewayServer{{
			Port: model.GatewayPort{Number: 443, Name: "https", Protocol: model.ProtocolHTTPS}, Hosts: []model.HostSelector{{Namespace: "*", Host: "*"}},
			TLS: &model.ServerTLS{Mode: model.ServerSimple, CredentialNames: []string{"web"}},
		}},
	}, &model.Service{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}, ResourceVersion: "1"},
		Hostname: "web.shop.svc.cluster.local", Addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.1/32")}, Selector: map[string]string{"app": "web"},
		Ports: []model.ServicePort{{Number: 8443, TargetPort: 8443, Protocol: model.ProtocolHTTPS}}, Resolution: model.ResolutionStatic,
	})
	router := webProxy("shop", "web", true)
	router.Type = model.ProxyRouter
	edge, _ := d.Index().Keys(router)
	outbound, inbound := d.Index().Keys(webProxy("shop", "web", true))
	for _, k := range []GroupKey{edge, outbound, inbound} {
		d.Open(k)
	}
	config := &model.MeshConfig{
		Meta:        model.Meta{Key: model.Key{Kind: model.KindMeshConfig, Namespace: "istio-system", Name: model.MeshConfigName}},
		TLSDefaults: &model.TLSDefaults{MinVersion: "TLSv1_3", ECDHCurves: []string{"P-256"}},
	}
	deltas := put(d, nil, config).Deltas
	require.Same(t, config.TLSDefaults, deltas[outbound].Clusters["outbound|8443||web.shop.svc.cluster.local"].TLSDefaults)
	for _, k := range []GroupKey{edge, inbound} {
		ended := 0
		for _, l := range deltas[k].Listeners {
			chains := slices.Clone(l.Chains)
			if l.Default != nil {
				chains = append(chains, *l.Default)
			}
			for _, c := range chains {
				if c.TLS != nil && c.TLS.Server != nil {
					ended++
					require.Equal(t, "TLSv1_3", c.TLS.Server.MinVersion, l.Name)
					require.Equal(t, []string{"P-256"}, c.TLS.Server.ECDHCurves, l.Name)
				}
			}
		}
		require.NotZero(t, ended, k.String())
	}
}
