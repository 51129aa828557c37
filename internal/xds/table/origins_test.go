package table

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// TestOriginsDoNotChangeEntries: an entry has the newest origins, and remains the same entry.
func TestOriginsDoNotChangeEntries(t *testing.T) {
	rule := model.Key{Kind: model.KindDestinationRule, Namespace: "shop", Name: "rule"}
	other := model.Key{Kind: model.KindDestinationRule, Namespace: "shop", Name: "other"}
	for _, typ := range []resource.Type{resource.Cluster, resource.RouteConfig} {
		t.Run(typ.String(), func(t *testing.T) {
			tab := New("t")
			update := func(text string, from ...model.Key) []Update {
				return []Update{{Type: typ, Name: "a", Resource: resource.EncodeBytes(typ, "a", []byte(text)), Origins: model.OriginsOf(from...)}}
			}
			require.Equal(t, 1, tab.Commit(1, update("one", rule)))
			e := tab.State().Get(typ, "a")
			require.Equal(t, []model.Key{rule}, e.MadeFrom().Keys())

			require.Zero(t, tab.Commit(2, update("one", other)), "the bytes are the same")
			require.Same(t, e, tab.State().Get(typ, "a"))
			require.Equal(t, []model.Key{other}, e.MadeFrom().Keys())
			require.EqualValues(t, 1, e.Revision)

			require.Equal(t, 1, tab.Commit(3, update("two", rule)))
			now := tab.State().Get(typ, "a")
			require.True(t, now.ChangedBy(rule) && now.ChangedBy(other), "the new and the previous origins count")
			require.False(t, now.MadeFrom().Has(other))

			require.Equal(t, 1, tab.Commit(4, []Update{{Type: typ, Name: "a"}}))
			for touch := range tab.State().Touched(typ, 4) {
				require.True(t, touch.Removed && touch.By(rule) && !touch.By(other))
			}
		})
	}
}

// TestOriginsOfSharedBytes: tables share the bytes of a resource, and each has its own origins.
func TestOriginsOfSharedBytes(t *testing.T) {
	a := model.Key{Kind: model.KindService, Namespace: "shop", Name: "a"}
	b := model.Key{Kind: model.KindService, Namespace: "shop", Name: "b"}
	shared := resource.EncodeBytes(resource.Cluster, "c", []byte("text"))
	one, two := New("one"), NewFor("two", model.OriginsOf(b))
	one.Commit(1, []Update{{Type: resource.Cluster, Name: "c", Resource: shared, Origins: model.OriginsOf(a)}})
	two.Commit(1, []Update{{Type: resource.Cluster, Name: "c", Resource: shared, Origins: model.OriginsOf(a, b)}})
	x, y := one.State().Get(resource.Cluster, "c"), two.State().Get(resource.Cluster, "c")
	require.Same(t, x.Resource(), y.Resource())
	require.False(t, x.MadeFrom().Has(b))
	require.True(t, y.MadeFrom().Has(b))
	require.True(t, two.Group().Has(b))
}
