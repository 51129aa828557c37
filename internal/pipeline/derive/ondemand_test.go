package derive

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// delivered derives the outbound group of a sidecar that can ask, with a delivery, and what later objects change.
func delivered(delivery model.Delivery, sharding Sharding, objects ...model.Object) (have *Delta, apply func(...model.Object)) {
	mesh := model.DefaultMesh()
	mesh.Delivery = delivery
	st, d := store.New(), New(mesh, 1)
	d.SetSharding(sharding)
	var key GroupKey
	apply = func(objects ...model.Object) {
		var events []store.Event
		for _, o := range objects {
			events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
		}
		_, changes := st.Apply(events)
		if delta := d.Apply(changes).Deltas[key]; delta != nil {
			merge(have, delta)
		}
	}
	apply(objects...)
	p := webProxy("shop", "web", true)
	p.OnDemand, p.ScopedRoutes = true, true
	key, _ = d.Index().Keys(p)
	have = d.Open(key)
	return have, apply
}

// TestListenersOfBothModes checks that automatic delivery has the listeners of clusters on demand also while a sidecar gets
// everything, unless routes are split in only one of the modes: a change of the mode ends no other connections.
func TestListenersOfBothModes(t *testing.T) {
	var services []model.Object
	for i := range 8 {
		services = append(services, serviceOf(fmt.Sprint("s", i), "1", nil))
	}
	database := serviceOf("database", "1", func(s *model.Service) {
		s.Ports = []model.ServicePort{{Name: "tcp", Number: 6379, Protocol: model.ProtocolTCP}}
	})
	services = append(services, database)
	for _, tt := range []struct {
		name string
		from int // virtual hosts; a quarter of it on demand
		same bool
	}{{"whole in both", 1000, true}, {"split on demand", 32, false}} {
		t.Run(tt.name, func(t *testing.T) {
			by := Sharding{From: tt.from, Bits: 3}
			auto, _ := delivered(model.DeliverAuto, by, services...)
			asked, _ := delivered(model.DeliverOnDemand, by, services...)
			require.NotEmpty(t, auto.Listeners)
			for name, l := range auto.Listeners {
				if name == "0.0.0.0_80" && !tt.same {
					require.NotEqual(t, l, asked.Listeners[name])
					require.True(t, asked.Listeners[name].Chains[0].HTTP.ShardsOnDemand)
					continue
				}
				require.Equal(t, l, asked.Listeners[name], name)
			}
			require.True(t, auto.Listeners["0.0.0.0_80"].Chains[0].HTTP.OnDemand)
			full, _ := delivered(model.DeliverFull, by, services...)
			require.False(t, full.Listeners["0.0.0.0_80"].Chains[0].HTTP.OnDemand)
		})
	}
}

// TestClustersThatPluginsName checks that clusters which configurations of plugins name precede their calls: nothing asks for
// them. Plugins come and go, and others name nothing or select other workloads.
func TestClustersThatPluginsName(t *testing.T) {
	names := map[string]string{}
	var services []model.Object
	for _, name := range []string{"requests", "bytes", "inbound", "later", "env", "others"} {
		services = append(services, serviceOf(name, "1", nil))
		names[name] = "outbound|80||" + name + ".shop.svc.cluster.local"
	}
	plugin := func(name string, change func(*model.WasmPlugin)) *model.WasmPlugin {
		p := &model.WasmPlugin{
			Meta: model.Meta{Key: model.Key{Kind: model.KindWasmPlugin, Namespace: "shop", Name: name}, ResourceVersion: "1"},
			File: "/plugin.wasm", Config: fmt.Sprintf(`{"cluster": %q}`, names[name]),
		}
		change(p)
		return p
	}
	have, apply := delivered(model.DeliverOnDemand, Sharding{}, append(services,
		plugin("requests", func(*model.WasmPlugin) {}),
		plugin("bytes", func(p *model.WasmPlugin) { p.Network = true }),
		plugin("inbound", func(p *model.WasmPlugin) { p.Matches = []model.WasmMatch{{Sides: model.SideServer}} }),
		plugin("env", func(p *model.WasmPlugin) {
			p.Config, p.Env = "", []model.WasmVariable{{Name: "CLUSTER", Value: names["env"]}}
		}),
		plugin("others", func(p *model.WasmPlugin) { p.Selector = map[string]string{"app": "other"} }),
	)...)
	onDemand := func() map[string]bool {
		out := map[string]bool{}
		for short, name := range names {
			require.NotNil(t, have.Clusters[name], name)
			out[short] = have.Clusters[name].OnDemand
		}
		return out
	}
	want := map[string]bool{"requests": false, "bytes": false, "inbound": false, "env": false, "later": true, "others": true}
	require.Equal(t, want, onDemand())
	apply(plugin("later", func(*model.WasmPlugin) {}))
	want["later"] = false
	require.Equal(t, want, onDemand())
}

// TestClustersThatInboundFiltersName checks that clusters which EnvoyFilters for inbound listeners name precede their calls.
func TestClustersThatInboundFiltersName(t *testing.T) {
	names := map[string]string{}
	var objects []model.Object
	for _, name := range []string{"all", "selected", "others"} {
		objects = append(objects, serviceOf(name, "1", nil))
		names[name] = "outbound|80||" + name + ".shop.svc.cluster.local"
	}
	filter := func(name string, selector map[string]string) *model.EnvoyFilter {
		return &model.EnvoyFilter{
			Meta:     model.Meta{Key: model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: name}, ResourceVersion: "1"},
			Selector: selector, Patches: []model.EnvoyPatch{{
				Target: model.PatchHTTPFilter, Operation: model.PatchFirst, Context: model.PatchInbound, Value: []byte("call " + names[name]),
			}},
		}
	}
	objects = append(objects, filter("all", nil), filter("selected", map[string]string{"app": "web"}), filter("others", map[string]string{"app": "other"}))
	have, _ := delivered(model.DeliverOnDemand, Sharding{}, objects...)
	got := map[string]bool{}
	for short, name := range names {
		got[short] = have.Clusters[name].OnDemand
	}
	require.Equal(t, map[string]bool{"all": false, "selected": false, "others": true}, got)
}

// TestInboundFiltersSplitNoGroups checks that the labels of EnvoyFilters for inbound listeners count only for proxies that get
// clusters on demand, and only if a patch names one.
func TestInboundFiltersSplitNoGroups(t *testing.T) {
	for _, tt := range []struct {
		name, value string
		delivery    model.Delivery
		split       bool
	}{
		{"names a cluster", "outbound|80||x", model.DeliverOnDemand, true},
		{"names none", "x", model.DeliverOnDemand, false},
		{"all clusters", "outbound|80||x", model.DeliverFull, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mesh := model.DefaultMesh()
			mesh.Delivery = tt.delivery
			d := New(mesh, 1)
			key := func(app string) GroupKey {
				p := webProxy("shop", "web", true)
				p.OnDemand, p.Labels = true, map[string]string{"app": app}
				out, _ := d.Index().Keys(p)
				return out
			}
			f := &model.EnvoyFilter{
				Meta:     model.Meta{Key: model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "f"}},
				Selector: map[string]string{"app": "web"},
				Patches: []model.EnvoyPatch{{
					Target: model.PatchHTTPFilter, Operation: model.PatchFirst, Context: model.PatchInbound, Value: []byte(tt.value),
				}},
			}
			before := key("web")
			put(d, nil, f)
			require.Equal(t, tt.split, key("web") != key("other"))
			put(d, f, nil)
			require.Equal(t, before, key("web"))
		})
	}
}
