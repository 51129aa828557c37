package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/endpoint"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestListenersThatLookForTheWhole: those with filters of users do, and those that EnvoyFilters name
// parts of. What they looked for before stays.
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

// mergeAll is what a scope that is open would have if it were opened now.
func mergeAll(d *Deriver, k GroupKey, have *Delta) {
	scratch := newProxyGroup(k, d.index.Sidecar(k.Sidecar), d.sharding)
	scratch.markAll(d.index)
	merge(have, scratch.derive(d.index, endpoint.NewMemo()))
}
