package ledger

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// TestFlightsAreShared: streams in the same situation share the record of what is in flight. A
// stream that is bound to other tables does not change that of the others.
func TestFlightsAreShared(t *testing.T) {
	out, first := benchMesh(2)
	second := New(Delta, VirtualHosts, first.pool, []*table.State{out.State()})
	benchConnect(second, 2)
	const cluster = "outbound|80||service-0.ns.svc.cluster.local"
	out.Commit(2, []table.Update{{Type: resource.Endpoints, Name: cluster, Resource: content{n: 2}.encode(resource.Endpoints, cluster)}})
	for _, l := range []*Ledger{first, second} {
		l.Update([]*table.State{out.State()})
		require.Len(t, l.Next(nil), 1)
	}
	shared := second.watches[eds].flight
	require.Same(t, shared, first.watches[eds].flight)
	before := *shared
	other := table.New("other")
	other.Commit(3, benchUpdates(1))
	first.Update([]*table.State{other.State()})
	require.NotSame(t, shared, first.watches[eds].flight)
	require.True(t, first.watches[eds].flight.explicit)
	require.Same(t, shared, second.watches[eds].flight)
	require.Equal(t, before, *shared)
}
