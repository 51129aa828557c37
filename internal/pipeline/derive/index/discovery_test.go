package index

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestDiscovery checks which services a proxy sees while namespaces join and leave the mesh.
func TestDiscovery(t *testing.T) {
	st, x := store.New(), New(model.DefaultMesh())
	version := 0
	apply := func(objects ...model.Object) {
		var events []store.Event
		for _, o := range objects {
			version++
			o.Metadata().ResourceVersion = string(rune('a' + version))
			events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
		}
		_, changes := st.Apply(events)
		x.Apply(changes)
	}
	remove := func(k model.Key) {
		_, changes := st.Apply([]store.Event{{Key: k}})
		x.Apply(changes)
	}
	seen := func() []string {
		var out []string
		for _, ns := range []string{"a", "b"} {
			if len(x.services[model.Host("web."+ns+".svc.cluster.local")]) > 0 {
				out = append(out, ns)
			}
		}
		return out
	}
	service := func(ns string) model.Object {
		return &model.Service{
			Meta:     model.Meta{Key: model.Key{Kind: model.KindService, Namespace: ns, Name: "web"}},
			Hostname: model.Host("web." + ns + ".svc.cluster.local"),
		}
	}
	namespace := func(name, team string) model.Object {
		return &model.Namespace{Meta: model.Meta{Key: model.Key{Kind: model.KindNamespace, Name: name}, Labels: map[string]string{"team": team}}}
	}
	key := model.Key{Kind: model.KindMeshConfig, Namespace: "istio-system", Name: "istio"}
	config := func(team string) model.Object {
		return &model.MeshConfig{Meta: model.Meta{Key: key}, Discovery: []model.LabelSelector{{Labels: map[string]string{"team": team}}}}
	}

	apply(service("a"), service("b"), namespace("a", "x"))
	require.Equal(t, []string{"a", "b"}, seen(), "without selectors everything belongs to the mesh")
	apply(config("x"))
	require.Equal(t, []string{"a"}, seen())
	apply(namespace("b", "x"), service("b"))
	require.Equal(t, []string{"a", "b"}, seen(), "a label brings what the namespace had")
	apply(namespace("a", "y"), service("a"))
	require.Equal(t, []string{"b"}, seen(), "and takes it along, whatever else changes with it")
	apply(config("y"), service("b"))
	require.Equal(t, []string{"a"}, seen())
	remove(model.Key{Kind: model.KindNamespace, Name: "a"})
	require.Empty(t, seen())
	remove(key)
	require.Equal(t, []string{"a", "b"}, seen())
	other := config("x").(*model.MeshConfig)
	other.Namespace = "a"
	apply(other)
	require.Equal(t, []string{"a", "b"}, seen(), "the configuration is that of the root namespace")
}

// TestDefaultExportTo checks the visibility of objects without one of their own while the mesh's default changes.
// Objects with their own visibility never change.
func TestDefaultExportTo(t *testing.T) {
	x := New(model.DefaultMesh())
	service := func(name string, v model.Visibility) *model.Service {
		return &model.Service{
			Meta:       model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "a", Name: name}},
			Hostname:   model.Host(name + ".a.svc.cluster.local"),
			Visibility: v,
		}
	}
	public := service("public", model.Visibility{Public: true})
	silent := service("silent", model.Visibility{})
	private := service("private", model.Visibility{Private: true, Namespaces: []string{"b"}})
	for _, s := range []*model.Service{public, silent, private} {
		put(x, nil, s)
	}
	seen := func(ns string) []string {
		var out []string
		for _, s := range []*model.Service{public, silent, private} {
			for _, indexed := range x.services[s.Hostname] {
				if indexed.Visibility.Sees(ns) {
					out = append(out, s.Name)
				}
			}
		}
		return out
	}
	config := func(exportTo ...string) *model.MeshConfig {
		c := &model.MeshConfig{Meta: model.Meta{Key: model.Key{Kind: model.KindMeshConfig, Namespace: "istio-system", Name: "istio"}}}
		if len(exportTo) > 0 {
			c.ExportTo = map[model.Kind][]string{model.KindService: exportTo}
		}
		return c
	}
	require.Equal(t, []string{"public", "silent", "private"}, seen("b"))
	first := config(".")
	put(x, nil, first)
	require.Equal(t, []string{"public", "private"}, seen("b"))
	require.Equal(t, []string{"public", "silent"}, seen("a"))
	require.True(t, silent.Visibility.IsDefault(), "the store's objects stay as they are")

	late := service("late", model.Visibility{})
	put(x, nil, late)
	require.False(t, x.services[late.Hostname][0].Visibility.Sees("b"))
	put(x, late, nil)
	require.Empty(t, x.services[late.Hostname])

	second := config("b", ".")
	put(x, first, second)
	require.Equal(t, []string{"public", "silent", "private"}, seen("b"))
	require.Equal(t, []string{"public", "silent"}, seen("a"))
	require.Equal(t, []string{"public"}, seen("c"))
	put(x, second, config("~"))
	require.Equal(t, []string{"public"}, seen("a"))
	put(x, second, nil)
	require.Equal(t, []string{"public", "silent"}, seen("c"))
}

// TestConfigMapsAreNoMeshConfig checks that other ConfigMaps do not change the mesh's configuration.
func TestConfigMapsAreNoMeshConfig(t *testing.T) {
	x := New(model.DefaultMesh())
	root := x.mesh.RootNamespace
	only := model.OutboundRegistryOnly
	config := &model.MeshConfig{
		Meta: model.Meta{Key: model.Key{Kind: model.KindMeshConfig, Namespace: root, Name: model.MeshConfigName}}, Outbound: &only,
		ExportTo: map[model.Kind][]string{model.KindService: {"."}},
	}
	roots := &model.Secret{Meta: model.Meta{Key: model.Key{Kind: model.KindConfigMap, Namespace: root, Name: "roots"}}, CA: "roots"}
	x.Apply([]store.Change{{Key: config.Key, New: config}})
	x.Apply([]store.Change{{Key: roots.Key, New: roots}})
	require.Equal(t, model.OutboundRegistryOnly, x.mesh.Outbound)
	require.Equal(t, config.ExportTo, x.exports.defaults)
	x.Apply([]store.Change{{Key: roots.Key, Old: roots}})
	require.Equal(t, model.OutboundRegistryOnly, x.mesh.Outbound)
}

// put applies one change.
func put(x *Index, old, now model.Object) {
	c := store.Change{}
	if old != nil {
		c.Key, c.Old = old.Metadata().Key, old
	}
	if now != nil {
		c.Key, c.New = now.Metadata().Key, now
	}
	x.Apply([]store.Change{c})
}
