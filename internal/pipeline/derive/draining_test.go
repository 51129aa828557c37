package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// leavingMesh is a deriver with a service of two Pods, of which slices tell; where named is
// false they do not tell which Pods.
func leavingMesh(named bool) *Deriver {
	d := New(model.DefaultMesh(), 1)
	s := &model.Service{
		Meta: model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}}, Hostname: "web.shop.svc.cluster.local",
		Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}, Resolution: model.ResolutionStatic,
	}
	slice := &model.EndpointSlice{
		Meta:    model.Meta{Key: model.Key{Kind: model.KindEndpointSlice, Namespace: "shop", Name: "web-1"}},
		Service: "web", Ports: []model.SlicePort{{Name: "http", Number: 8080}},
		Members: []model.SliceEndpoint{
			{Addresses: []string{"10.1.0.1"}, Ready: true, Pod: "web-a"}, {Addresses: []string{"10.1.0.2"}, Ready: true, Pod: "web-b"},
		},
	}
	if !named {
		slice.Members[0].Pod, slice.Members[1].Pod = "", ""
	}
	d.Apply([]store.Change{{Key: s.Key, New: s}, {Key: slice.Key, New: slice}})
	return d
}

func departure(pod, address string) *model.DrainNotice {
	return &model.DrainNotice{Meta: model.Meta{Key: model.Key{Kind: model.KindDrainNotice, Namespace: "shop", Name: pod}}, Addresses: []string{address}}
}

// callable are the addresses that proxies are told of.
func callable(d *Deriver, k GroupKey) []string {
	d.Close(k)
	var out []string
	for _, l := range d.Open(k).Endpoints["outbound|80||web.shop.svc.cluster.local"].Localities {
		for _, e := range l.Endpoints {
			out = append(out, e.Address)
		}
	}
	return out
}

func TestDeparture(t *testing.T) {
	both := []string{"10.1.0.1", "10.1.0.2"}
	for name, tc := range map[string]struct {
		named bool
		leave []*model.DrainNotice
		want  []string
	}{
		"nobody leaves":                 {true, nil, both},
		"its endpoint goes":             {true, []*model.DrainNotice{departure("web-a", "10.1.0.1")}, []string{"10.1.0.2"}},
		"of Pods that nobody names":     {false, []*model.DrainNotice{departure("web-a", "10.1.0.1")}, []string{"10.1.0.2"}},
		"another Pod has the address":   {true, []*model.DrainNotice{departure("old", "10.1.0.1")}, both},
		"unknown address":               {true, []*model.DrainNotice{departure("web-a", "10.9.9.9")}, both},
		"the last ones get calls still": {true, []*model.DrainNotice{departure("web-a", "10.1.0.1"), departure("web-b", "10.1.0.2")}, both},
	} {
		t.Run(name, func(t *testing.T) {
			d := leavingMesh(tc.named)
			k, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "shop", Name: "client", IPs: []string{"10.1.0.9"}})
			d.Open(k)
			for _, l := range tc.leave {
				d.Apply([]store.Change{{Key: l.Key, New: l}})
			}
			require.Equal(t, tc.want, callable(d, k))
			for _, l := range tc.leave {
				d.Apply([]store.Change{{Key: l.Key, Old: l}})
			}
			require.Equal(t, both, callable(d, k), "they stay after all")
		})
	}
}

func TestHostsAt(t *testing.T) {
	d := leavingMesh(true)
	require.Equal(t, []model.Host{"web.shop.svc.cluster.local"}, d.Index().HostsAt("10.1.0.1"))
	require.True(t, d.Index().Lists("10.1.0.2"))
	require.Empty(t, d.Index().HostsAt("10.9.9.9"))
	require.False(t, d.Index().Lists("10.9.9.9"))
}
