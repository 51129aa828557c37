package ledger

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// TestRebindingDependsOnTheFormOfRoutes moves two streams to a table in which a virtual host differs. One has route
// configurations without virtual hosts, which are equal. The other gets whole ones, and must not use the first one's result.
func TestRebindingDependsOnTheFormOfRoutes(t *testing.T) {
	const host = "80/a"
	withHost := func(name string, n int) *table.Table {
		tab := table.New(name)
		tab.Commit(1, append(benchUpdates(1), table.Update{Type: resource.VirtualHost, Name: host, Resource: content{n: n}.encode(resource.VirtualHost, host)}))
		return tab
	}
	old, next, pool := withHost("old", 1), withHost("next", 2), names.NewPool()
	connect := func(p Protocol) *Ledger {
		l := New(p, VirtualHosts, pool, []*table.State{old.State()})
		l.Handle(&Request{TypeURL: []byte(resource.RouteConfigURL), Subscribe: slices2("80"), Names: slices2("80")})
		first := l.Next(nil)
		require.Len(t, first, 1)
		l.Handle(&Request{TypeURL: []byte(resource.RouteConfigURL), Nonce: strconv.AppendUint(nil, first[0].Nonce, 10), Names: slices2("80")})
		return l
	}
	delta, whole := connect(Delta), connect(Sotw)
	delta.Update([]*table.State{next.State()})
	require.Empty(t, delta.Next(nil))
	whole.Update([]*table.State{next.State()})
	sent := whole.Next(nil)
	require.Len(t, sent, 1)
	require.Equal(t, resource.RouteConfig, sent[0].Type)
}
