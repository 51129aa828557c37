package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// TestProxyHeaders: the mesh's reach listeners and virtual hosts that are there, but those of proxies that say so
// themselves.
func TestProxyHeaders(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	put(d, nil, webOf("web"))
	own := webProxy("shop", "web", true)
	said := model.ProxyHeaders{Said: true, NoRequestIDs: true, ForwardHost: true, KeepCase: true}
	own.Headers = said
	outbound, inbound := d.Index().Keys(webProxy("shop", "web", true))
	ownOutbound, ownInbound := d.Index().Keys(own)
	d.Open(outbound)
	d.Open(inbound)
	requireHeaders(t, said, d.Open(ownOutbound))
	requireHeaders(t, said, d.Open(ownInbound))
	config := &model.MeshConfig{
		Meta:    model.Meta{Key: model.Key{Kind: model.KindMeshConfig, Namespace: "istio-system", Name: model.MeshConfigName}},
		Headers: &model.ProxyHeaders{Said: true, NoAttempts: true, KeepCase: true},
	}
	deltas := put(d, nil, config).Deltas
	requireHeaders(t, *config.Headers, deltas[outbound])
	requireHeaders(t, *config.Headers, deltas[inbound])
	require.Contains(t, deltas[outbound].VirtualHosts, "80/web.shop.svc.cluster.local:80")
	for _, own := range []GroupKey{ownOutbound, ownInbound} {
		if delta := deltas[own]; delta != nil && len(delta.Listeners) > 0 {
			requireHeaders(t, said, delta)
		}
	}
}

func requireHeaders(t *testing.T, want model.ProxyHeaders, in *Delta) {
	t.Helper()
	chains := 0
	for _, l := range in.Listeners {
		if l == nil {
			continue
		}
		for _, c := range l.Chains {
			if c.HTTP != nil {
				chains++
				require.Equal(t, want, c.HTTP.Headers, l.Name)
			}
		}
	}
	require.NotZero(t, chains)
	if v := in.VirtualHosts["80/web.shop.svc.cluster.local:80"]; v != nil {
		require.Equal(t, !want.NoAttempts, v.IncludeAttempts)
		require.Equal(t, want.ForwardHost, v.ForwardHost)
	}
	for _, name := range []string{"outbound|80||web.shop.svc.cluster.local", ir.PassthroughCluster, "inbound|8080||"} {
		if c := in.Clusters[name]; c != nil {
			require.Equal(t, want.KeepCase, c.KeepCase, name)
			chains++
		}
	}
	require.Greater(t, chains, 1, "there is no cluster")
}
