package engine

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestLackingAddresses checks that hosts without an address are listed while the range is used up.
func TestLackingAddresses(t *testing.T) {
	e, in, r := start(t, func(o *Options) {
		o.Mesh = model.DefaultMesh()
		o.Mesh.AutoAddresses.V4 = netip.MustParsePrefix("240.240.0.0/30")
	})
	entry := func(name string, created int64) store.Event {
		s := &model.ServiceEntry{Hosts: []model.Host{model.Host(name + ".example.com")}}
		s.Meta = model.Meta{Key: model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: name}, Created: time.Unix(created, 0)}
		s.Template.Resolution = model.ResolutionDNS
		return store.Event{Key: s.Key, Object: s}
	}
	in.Put(entry("a", 1), entry("b", 2))
	in.Synced("test")
	<-r
	require.Empty(t, e.Lacking())
	in.Put(entry("c", 3))
	<-r
	require.Len(t, e.Lacking(), 1)
	require.Equal(t, "c", e.Lacking()[0].Entry.Name)
	in.Put(service("a", 80))
	<-r
	require.Len(t, e.Lacking(), 1, "an unrelated change")
	in.Put(store.Event{Key: entry("b", 2).Key})
	<-r
	require.Empty(t, e.Lacking())
}
