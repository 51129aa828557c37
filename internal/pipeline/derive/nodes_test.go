package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

func nodeAt(locality string) *model.Node {
	return &model.Node{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindNode, Name: "node-1"}},
		Locality: model.ParseLocality(locality),
	}
}

// TestWhereProxiesAre holds that a proxy which does not say where it is, is where its Pod's
// node is, and belongs to another scope when that changes.
func TestWhereProxiesAre(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	pod := &model.Workload{Meta: model.Meta{Key: model.Key{Kind: model.KindPod, Namespace: "shop", Name: "web-1"}}, Node: "node-1"}
	silent := &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Name: "web-1"}
	telling := &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Name: "web-1", Locality: model.Locality{Region: "told"}}
	other := &model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Name: "web-2"}
	where := func(p *model.Proxy) string {
		outbound, _ := d.Index().Keys(p)
		return outbound.Locality.String()
	}
	first := nodeAt("r1/z1")
	put(d, nil, first)
	require.Nil(t, put(d, nil, pod).Rekey, "nobody asks where proxies are")
	require.Empty(t, where(silent))

	put(d, nil, ruleFor("1", 0, model.TrafficPolicy{
		LoadBalancer: &model.LoadBalancer{Locality: &model.LocalityLB{Failover: []model.LocalityFailover{{From: "r1", To: "r2"}}}},
	}, nil))
	require.Equal(t, []string{"r1/z1", "told", ""}, []string{where(silent), where(telling), where(other)})

	second := nodeAt("r2/z1")
	rekey := put(d, first, second).Rekey
	require.True(t, rekey(silent))
	require.False(t, rekey(other))
	require.Equal(t, "r2/z1", where(silent))
	rekey = put(d, pod, nil).Rekey
	require.True(t, rekey(silent))
	require.Empty(t, where(silent))
}
