package derive

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/endpoint"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/test/randommesh"
)

// requireParts checks that all shards exist that a listener uses.
func requireParts(t *testing.T, v *Delta, http *ir.HTTPChain) {
	t.Helper()
	for k := range routeshard.Count(http.ShardBits) {
		part := routeshard.Name(http.RouteConfig, http.ShardBits, k)
		require.NotNil(t, v.Scopes[part], part)
		require.NotNil(t, v.RouteConfigs[part], part)
		require.True(t, v.RouteConfigs[part].Shard, part)
	}
}

// partOf is which part of a route configuration a name is, if it is one.
func partOf(name string, bits int) (k int, ok bool) {
	rc := routeshard.RouteConfig(name)
	k, err := strconv.Atoi(strings.TrimPrefix(name, strings.TrimSuffix(routeshard.Name(rc, bits, 0), "0")))
	return k, rc != name && err == nil
}

// joined makes whole route configurations of their parts.
func joined(t *testing.T, d *Delta, bits int) *Delta {
	t.Helper()
	out := newDelta()
	for name := range d.RouteConfigs {
		rc := routeshard.RouteConfig(name)
		require.Equal(t, rc != name, d.Scopes[name] != nil, name)
		if rc != name {
			out.RouteConfigs[rc] = &ir.RouteConfig{Name: rc}
		}
	}
	for name, part := range d.VirtualHosts {
		k, ok := partOf(part.RouteConfig, bits)
		if !ok {
			continue
		}
		for _, domain := range part.Domains {
			require.True(t, routeshard.Takes(domain, bits, k), "%s: %s", name, domain)
		}
		v := *part
		v.RouteConfig = routeshard.RouteConfig(part.RouteConfig)
		if have := out.VirtualHosts[v.ResourceName()]; have != nil {
			v.Domains = append(slices.Clone(have.Domains), v.Domains...)
		}
		v.Domains = slices.Compact(slices.Sorted(slices.Values(v.Domains)))
		out.VirtualHosts[v.ResourceName()] = &v
	}
	return out
}

// TestPartsAreTheWhole checks that each whole route configuration equals that of a group without shards. In shards a host
// has the same routes, and each domain is in exactly the shards in which Envoy looks for hosts that it matches. A split
// route configuration stays split until it is removed. Without split route configurations, the group equals one without shards.
func TestPartsAreTheWhole(t *testing.T) {
	split, kept, known, untouched := 0, 0, 0, 0
	for seed := range lives(16) {
		w := &randommesh.World{Rand: rand.New(rand.NewPCG(seed, 5))}
		st, d := store.New(), New(model.DefaultMesh(), 1)
		d.SetSharding(splitSoon)
		have := map[GroupKey]*Delta{}
		for range 90 {
			_, changes := st.Apply(randomBatch(w))
			for k, delta := range d.Apply(changes).Deltas {
				before := slices.Collect(maps.Keys(have[k].Scopes))
				merge(have[k], delta)
				for _, part := range before {
					require.True(t, have[k].Scopes[part] != nil || have[k].RouteConfigs[routeshard.RouteConfig(part)] == nil, part)
				}
				require.True(t, len(before) == 0 || have[k].Listeners[routeshard.Listener] != nil, "it stays")
			}
			open(w, d, have)
			if w.Chance(0.2) {
				known += openKnown(w, d, have)
			}
		}
		for k, got := range have {
			if !k.ScopedRoutes && k.Sharded == "" || d.index.Sidecar(k.Sidecar) == nil && k.Sidecar != (model.Key{}) {
				continue
			}
			whole, asks := unsplit(d, k), d.ShardedIn(k) != ""
			split += requireWhole(t, k, whole, got)
			if d.Keeps(k) {
				kept++
			}
			require.Equal(t, asks, got.Listeners[routeshard.Listener] != nil, k.String())
			require.Equal(t, asks, d.ShardedIn(k).Has(routeshard.Listener), k.String())
			if !asks {
				require.Empty(t, cmp.Diff(whole, got, sameViews...), k.String())
				untouched++
			}
			if !k.ScopedRoutes {
				requireWholeUsed(t, got)
			}
		}
	}
	require.NotZero(t, split)
	require.NotZero(t, kept)
	require.NotZero(t, known)
	require.NotZero(t, untouched)
}

// requireWholeUsed checks that no listener uses shards.
func requireWholeUsed(t *testing.T, v *Delta) {
	t.Helper()
	for name, l := range v.Listeners {
		if l.Default != nil && name != routeshard.Listener {
			require.Less(t, bitsOf(l), 1, name)
		}
	}
}

// openKnown opens a group of a proxy that has had route configurations in shards, whether or not
// others are split now.
func openKnown(w *randommesh.World, d *Deriver, have map[GroupKey]*Delta) int {
	k, _ := d.Index().Keys(w.Proxy())
	if !k.ScopedRoutes {
		return 0
	}
	k.Sharded, k.ScopedRoutes = index.ShardedRoutesOf("80", "nothing"), w.Chance(0.5)
	delta := d.Open(k)
	if delta == nil {
		return 0
	}
	have[k] = newDelta()
	merge(have[k], delta)
	return len(have[k].Scopes)
}

// unsplit is what a group has if no route configuration is split.
func unsplit(d *Deriver, k GroupKey) *Delta {
	k.ScopedRoutes, k.Sharded = false, ""
	d.Close(k)
	out := newDelta()
	merge(out, d.Open(k))
	return out
}

func requireWhole(t *testing.T, k GroupKey, want, got *Delta) (split int) {
	t.Helper()
	whole := newDelta()
	for name, v := range got.VirtualHosts {
		if _, ok := partOf(v.RouteConfig, splitSoon.Bits); !ok {
			whole.VirtualHosts[name] = v
		}
	}
	require.Empty(t, cmp.Diff(want.VirtualHosts, whole.VirtualHosts, sameViews...), k.String())
	parts := joined(t, got, splitSoon.Bits)
	for rc := range want.RouteConfigs {
		require.NotNil(t, got.RouteConfigs[rc], "%s: %s", k, rc)
	}
	for rc := range parts.RouteConfigs {
		require.NotNil(t, want.RouteConfigs[rc], "%s: %s", k, rc)
		split++
	}
	for name, v := range want.VirtualHosts {
		if parts.RouteConfigs[v.RouteConfig] != nil {
			sorted := *v
			sorted.Domains = slices.Sorted(slices.Values(v.Domains))
			require.Empty(t, cmp.Diff(&sorted, parts.VirtualHosts[name], sameViews...), k.String())
		}
	}
	return split
}

// TestListenersThatLookForTheWhole checks the listeners that use whole route configurations: those with users' filters, and those
// whose parts EnvoyFilters name. What a listener looked for before stays.
func TestListenersThatLookForTheWhole(t *testing.T) {
	patched := func(target model.PatchTarget, context model.PatchContext) model.Object {
		return &model.EnvoyFilter{
			Meta:    model.Meta{Key: model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "users"}},
			Patches: []model.EnvoyPatch{{Target: target, Operation: model.PatchMerge, Context: context}},
		}
	}
	plugin := func(network bool, matches ...model.WasmMatch) model.Object {
		return &model.WasmPlugin{
			Meta:    model.Meta{Key: model.Key{Kind: model.KindWasmPlugin, Namespace: "shop", Name: "users"}},
			Network: network, File: "/plugin.wasm", Matches: matches,
		}
	}
	for name, tc := range map[string]struct {
		object model.Object
		whole  bool
	}{
		"filter":                {patched(model.PatchHTTPFilter, model.PatchOutbound), true},
		"filter of all":         {patched(model.PatchHTTPFilter, ""), true},
		"filter of callers":     {patched(model.PatchHTTPFilter, model.PatchInbound), false},
		"connection manager":    {patched(model.PatchNetworkFilter, model.PatchOutbound), true},
		"filter chain":          {patched(model.PatchFilterChain, model.PatchOutbound), true},
		"listener":              {patched(model.PatchListener, model.PatchOutbound), true},
		"route configuration":   {patched(model.PatchRouteConfig, model.PatchOutbound), true},
		"virtual host":          {patched(model.PatchVirtualHost, model.PatchOutbound), true},
		"route":                 {patched(model.PatchHTTPRoute, model.PatchOutbound), true},
		"filter's settings":     {patched(model.PatchExtensionConfig, model.PatchOutbound), true},
		"listener filter":       {patched(model.PatchListenerFilter, model.PatchOutbound), false},
		"cluster":               {patched(model.PatchCluster, model.PatchOutbound), false},
		"plugin":                {plugin(false), true},
		"plugin for callers":    {plugin(false, model.WasmMatch{Sides: model.SideServer}), false},
		"plugin for calls":      {plugin(false, model.WasmMatch{Sides: model.SideServer}, model.WasmMatch{Sides: model.SideClient, Ports: []uint32{81}}), true},
		"plugin of connections": {plugin(true), false},
	} {
		t.Run(name, func(t *testing.T) {
			d, st := New(model.DefaultMesh(), 1), store.New()
			d.SetSharding(Sharding{From: 3, Bits: 2})
			out, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "shop", ScopedRoutes: true})
			d.Open(out)
			grown(d, st, 0, 3)
			have := newDelta()
			apply := func(key model.Key, o model.Object) int {
				_, changes := st.Apply([]store.Event{{Key: key, Object: o}})
				if delta := d.Apply(changes).Deltas[out]; delta != nil {
					merge(have, delta)
				}
				return bitsOf(have.Listeners["0.0.0.0_80"])
			}
			grown(d, st, 3, 4)
			mergeAll(d, out, have)
			want := map[bool]int{true: 0, false: 2}[tc.whole]
			require.Equal(t, want, apply(tc.object.Metadata().Key, tc.object))
			require.Equal(t, index.ShardedRoutesOf("80").Asking(), d.ShardedIn(out))
			require.Equal(t, tc.whole, d.Keeps(out))
			require.Equal(t, 2, apply(tc.object.Metadata().Key, nil))
			require.False(t, d.Keeps(out))
		})
	}
}

// mergeAll is what an open group would have if it were opened now.
func mergeAll(d *Deriver, k GroupKey, have *Delta) {
	scratch := newProxyGroup(k, d.index.Sidecar(k.Sidecar), d.sharding)
	scratch.markAll(d.index)
	merge(have, scratch.derive(d.index, endpoint.NewMemo()))
}
