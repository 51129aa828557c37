package meshtest

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// TestExplainFindsResourcesOfObject checks on the whole corpus that a query about an object finds exactly the resources
// whose origins contain it, for proxies that connect after the object's last change and for proxies that were
// connected.
func TestExplainFindsResourcesOfObject(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	found := map[model.Kind]bool{}
	for _, path := range files {
		f, err := Load(path)
		require.NoError(t, err)
		for _, p := range f.Proxies {
			proxy := p.Model(f.Mesh.Domain)
			proxy.Verified, proxy.Modules, proxy.ServiceAccount = true, true, "default"
			tables, _ := engine.CompileTables(f.Mesh, f.Objects, proxy, derive.Sharding{}, "")
			for _, tab := range tables {
				changed := changedAgain(tab)
				for _, o := range f.Objects {
					if key := o.Metadata().Key; key.IsOrigin() {
						want := madeFrom(tab, key)
						require.Equal(t, want, queried(tab, &distribution.Query{Revision: tab.State().Revision, Object: key}), "%s: %s", path, key)
						require.Equal(t, want, queried(changed, &distribution.Query{Revision: 2, Object: key, Shared: true}), "%s: %s", path, key)
						found[key.Kind] = found[key.Kind] || len(want) > 0
					}
				}
			}
		}
	}
	for _, kind := range model.Kinds {
		if has, in := found[kind]; in {
			require.True(t, has || kind == model.KindReferenceGrant || kind == model.KindProxyConfig, "nothing of the corpus is made from a %s", kind)
		}
	}
}

// changedAgain returns a table that one batch of changes filled with everything in tab.
func changedAgain(tab *table.Table) *table.Table {
	out := table.NewFor(tab.Name(), tab.Group())
	out.Commit(1, []table.Update{{Type: resource.Cluster, Name: "before", Resource: resource.EncodeBytes(resource.Cluster, "before", nil)}})
	var updates []table.Update
	for typ := range resource.NumTypes {
		for e := range tab.State().All(typ) {
			updates = append(updates, table.Update{Type: typ, Name: e.Name, Resource: e.Resource(), Origins: e.MadeFrom()})
		}
	}
	out.Commit(2, updates)
	return out
}

// madeFrom returns the resources of a table whose origins or group contain an object.
func madeFrom(tab *table.Table, k model.Key) map[resourceKey]bool {
	all, out := map[resourceKey]*table.Entry{}, map[resourceKey]bool{}
	for typ := range resource.NumTypes {
		for e := range tab.State().All(typ) {
			all[resourceKey{typ, e.Name}] = e
		}
	}
	for at := range all {
		if originsOf(at, all).Has(k) || tab.Group().Has(k) {
			out[at] = true
		}
	}
	return out
}

// queried returns the resources of a table that a query is about.
func queried(tab *table.Table, q *distribution.Query) map[resourceKey]bool {
	out := map[resourceKey]bool{}
	for typ := range resource.NumTypes {
		for name := range q.Resources(tab.State(), typ) {
			if name != "before" {
				out[resourceKey{typ, name}] = true
			}
		}
	}
	return out
}
