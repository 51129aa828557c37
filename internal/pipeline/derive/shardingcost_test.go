package derive

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// grown is a mesh of so many services of one port.
func grown(d *Deriver, st *store.Store, from, to int) map[GroupKey]*Delta {
	var events []store.Event
	for i := from; i < to; i++ {
		s := &model.Service{Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}}
		s.Key = model.Key{Kind: model.KindService, Namespace: "shop", Name: fmt.Sprintf("svc-%d", i)}
		s.Hostname = model.ResolveHost(s.Name, s.Namespace, "cluster.local")
		events = append(events, store.Event{Key: s.Key, Object: s})
	}
	_, changes := st.Apply(events)
	return d.Apply(changes).Deltas
}

// bitsOf is what a listener's connection manager looks for; -1 without one.
func bitsOf(l *ir.Listener) int {
	for _, c := range append(slices.Clone(l.Chains), *l.Default) {
		if c.HTTP != nil {
			return c.HTTP.ShardBits
		}
	}
	return -1
}

// TestSplitCostsWhatChanges checks that a new service writes only its own virtual hosts, except when the route configuration
// becomes split. A split route configuration that shrinks stays split.
func TestSplitCostsWhatChanges(t *testing.T) {
	d, st := New(model.DefaultMesh(), 1), store.New()
	d.SetSharding(Sharding{From: 40, Bits: 4})
	out, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "shop", ScopedRoutes: true})
	require.NotContains(t, d.Open(out).Listeners, routeshard.Listener)
	require.NotContains(t, grown(d, st, 0, 39)[out].Listeners, routeshard.Listener)
	require.Empty(t, d.ShardedIn(out))

	got := grown(d, st, 39, 40)[out]
	require.Equal(t, 4, bitsOf(got.Listeners["0.0.0.0_80"]))
	require.Len(t, got.Scopes, routeshard.Count(4))
	require.NotContains(t, got.RouteConfigs, "80", "it is there already")
	require.NotNil(t, got.Listeners[routeshard.Listener])
	require.Equal(t, index.ShardedRoutesOf("80").Asking(), d.ShardedIn(out))
	require.False(t, d.Keeps(out))

	got = grown(d, st, 40, 41)[out]
	require.Empty(t, got.Scopes)
	require.Empty(t, got.RouteConfigs)
	requireOnlyOf(t, got, 40)
	require.NotNil(t, got.VirtualHosts["80/svc-40.shop.svc.cluster.local:80"], "the whole route configuration stays")

	grown(d, st, 41, 42) // of a single one the route configuration would be made
	var gone []store.Event
	for i := range 40 {
		gone = append(gone, store.Event{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: fmt.Sprintf("svc-%d", i)}})
	}
	_, changes := st.Apply(gone)
	got = d.Apply(changes).Deltas[out]
	require.Empty(t, got.Scopes, "all stay")
	require.Empty(t, got.RouteConfigs)
	require.Equal(t, 4, bitsOf(got.Listeners["0.0.0.0_80"]), "nor is the listener another one")
	require.True(t, d.Keeps(out))
}

// TestSplitComesBack checks that a split route configuration that was removed is split when it returns, and that listeners
// look for its shards.
func TestSplitComesBack(t *testing.T) {
	d, st := New(model.DefaultMesh(), 1), store.New()
	d.SetSharding(Sharding{From: 3, Bits: splitSoon.Bits})
	out, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "shop", ScopedRoutes: true})
	d.Open(out)
	have := newDelta()
	merge(have, grown(d, st, 0, 3)[out])
	var gone []store.Event
	for i := range 3 {
		gone = append(gone, store.Event{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: fmt.Sprintf("svc-%d", i)}})
	}
	_, changes := st.Apply(gone)
	merge(have, d.Apply(changes).Deltas[out])
	require.Empty(t, have.Scopes)
	require.Nil(t, have.RouteConfigs["80"])
	require.Equal(t, index.ShardedRoutesOf("80").Asking(), d.ShardedIn(out))
	require.False(t, d.Keeps(out), "there are no shards")

	merge(have, grown(d, st, 0, 1)[out])
	require.Len(t, have.Scopes, routeshard.Count(splitSoon.Bits))
	require.Equal(t, splitSoon.Bits, bitsOf(have.Listeners["0.0.0.0_80"]))
	requireWhole(t, out, unsplit(d, out), have)
}

// requireOnlyOf: of no service but one there is a virtual host.
func requireOnlyOf(t *testing.T, d *Delta, service int) {
	t.Helper()
	for name, v := range d.VirtualHosts {
		if v != nil && isServiceHost(name[strings.LastIndexByte(name, '/')+1:]) {
			require.True(t, strings.HasSuffix(name, fmt.Sprintf("/svc-%d.shop.svc.cluster.local:80", service)), name)
		}
	}
}

// TestWildcardsAreNotCopiedInVain checks that a route configuration with many wildcards is split only once it has enough other
// hosts, because each shard has all wildcards. In groups in which it was split, it stays split.
func TestWildcardsAreNotCopiedInVain(t *testing.T) {
	d, st := New(model.DefaultMesh(), 1), store.New()
	d.SetSharding(Sharding{From: 4, Bits: 2, Copies: 2})
	out, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "shop", ScopedRoutes: true})
	d.Open(out)
	wild := func(name string, hosts ...model.Host) map[GroupKey]*Delta {
		e := &model.ServiceEntry{Meta: model.Meta{Key: model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: name}}, Hosts: hosts}
		e.Template.Ports = []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}
		_, changes := st.Apply([]store.Event{{Key: e.Key, Object: e}})
		return d.Apply(changes).Deltas
	}
	wild("two", "*.a.example", "*.b.example")
	require.Empty(t, grown(d, st, 0, 5)[out].Scopes, "16 copies for 7")
	require.Len(t, grown(d, st, 5, 6)[out].Scopes, routeshard.Count(2), "16 copies for 8")
	require.False(t, d.Keeps(out))

	got := wild("third", "*.c.example")[out]
	require.Empty(t, got.Scopes)
	require.NotNil(t, got.VirtualHosts["80~4~7/*.c.example:80"])
	require.True(t, d.Keeps(out), "others need not have it so")
}

// TestFormsOfShards checks that a group with clusters on demand has shards on demand, and that proxies which move to
// another group keep the form of shards that they have.
func TestFormsOfShards(t *testing.T) {
	asked := routeshard.OnDemandForm("80")
	for _, tt := range []struct {
		name     string
		onDemand bool
		sharded  ShardedRoutes
		form     string
		bits     int
	}{
		{"full", false, "", "80", 3},
		{"on demand", true, "", asked, 4},
		{"on demand, from full", true, index.ShardedRoutesOf("80").Asking(), "80", 3},
		{"full, from on demand", false, index.ShardedRoutesOf(asked).Asking(), asked, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, st := New(model.DefaultMesh(), 1), store.New()
			d.SetSharding(Sharding{From: 12, Bits: 3})
			out, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "shop", ScopedRoutes: true})
			out.Sharded = tt.sharded
			if tt.onDemand {
				out.Asking = index.AsksForClusters
			}
			have := d.Open(out)
			merge(have, grown(d, st, 0, 12)[out])
			require.Equal(t, index.ShardedRoutesOf(tt.form).Asking(), d.ShardedIn(out))
			require.Len(t, have.Scopes, routeshard.Count(tt.bits))
			for k := range routeshard.Count(tt.bits) {
				name := routeshard.Name(tt.form, tt.bits, k)
				require.Equal(t, tt.form == asked, have.Scopes[name].OnDemand, name)
				require.True(t, have.RouteConfigs[name].Shard, name)
			}
			chain := have.Listeners["0.0.0.0_80"].Chains[0].HTTP
			require.Equal(t, tt.bits, chain.ShardBits)
			require.Equal(t, tt.form == asked, chain.ShardsOnDemand)
			require.Equal(t, tt.onDemand || tt.form == asked, chain.OnDemand, "the filter that asks")
		})
	}
}
