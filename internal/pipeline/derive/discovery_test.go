package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestDiscovery holds which services a proxy sees while namespaces come to belong to the
// mesh and cease to.
func TestDiscovery(t *testing.T) {
	st, d := store.New(), New(model.DefaultMesh(), 1)
	version := 0
	apply := func(objects ...model.Object) {
		var events []store.Event
		for _, o := range objects {
			version++
			o.Metadata().ResourceVersion = string(rune('a' + version))
			events = append(events, store.Event{Key: o.Metadata().Key, Object: o})
		}
		_, changes := st.Apply(events)
		d.Apply(changes)
	}
	remove := func(k model.Key) {
		_, changes := st.Apply([]store.Event{{Key: k}})
		d.Apply(changes)
	}
	seen := func() []string {
		var out []string
		for _, ns := range []string{"a", "b"} {
			if len(d.Index().services[model.Host("web."+ns+".svc.cluster.local")]) > 0 {
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

// TestDefaultExportTo holds who sees objects that say nothing, while the mesh's default
// changes; those that say something never change.
func TestDefaultExportTo(t *testing.T) {
	d := New(model.DefaultMesh(), 1)
	service := func(name string, v model.Visibility) *model.Service {
		return &model.Service{
			Meta:       model.Meta{Key: model.Key{Kind: model.KindService, Namespace: "a", Name: name}},
			Hostname:   model.Host(name + ".a.svc.cluster.local"),
			Visibility: v,
		}
	}
	said := service("said", model.Visibility{Public: true})
	silent := service("silent", model.Visibility{})
	private := service("private", model.Visibility{Private: true, Namespaces: []string{"b"}})
	for _, s := range []*model.Service{said, silent, private} {
		put(d, nil, s)
	}
	seen := func(ns string) []string {
		var out []string
		for _, s := range []*model.Service{said, silent, private} {
			for _, indexed := range d.Index().services[s.Hostname] {
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
	require.Equal(t, []string{"said", "silent", "private"}, seen("b"))
	first := config(".")
	put(d, nil, first)
	require.Equal(t, []string{"said", "private"}, seen("b"))
	require.Equal(t, []string{"said", "silent"}, seen("a"))
	require.True(t, silent.Visibility.IsDefault(), "the store's objects stay as they are")

	late := service("late", model.Visibility{})
	put(d, nil, late)
	require.False(t, d.Index().services[late.Hostname][0].Visibility.Sees("b"))
	put(d, late, nil)
	require.Empty(t, d.Index().services[late.Hostname])

	second := config("b", ".")
	put(d, first, second)
	require.Equal(t, []string{"said", "silent", "private"}, seen("b"))
	require.Equal(t, []string{"said", "silent"}, seen("a"))
	require.Equal(t, []string{"said"}, seen("c"))
	put(d, second, config("~"))
	require.Equal(t, []string{"said"}, seen("a"))
	put(d, second, nil)
	require.Equal(t, []string{"said", "silent"}, seen("c"))
}
