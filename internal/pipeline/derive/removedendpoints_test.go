package derive

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestNothingIsLeft holds that scopes and index forget: once all objects are gone, so is
// everything that was derived of them.
func TestNothingIsLeft(t *testing.T) {
	for seed := range lives(15) {
		w := worldOf(seed, 3)
		st, d := store.New(), New(model.DefaultMesh(), 1)
		d.SetSharding(splitSoon)
		have := live(w, st, d, 60)
		_, changes := st.Apply(removeAll(st.Snapshot()))
		for k, delta := range d.Apply(changes).Deltas {
			merge(have[k], delta)
		}
		require.Empty(t, d.index.Sizes())
		for k, s := range d.groups {
			if k.Sidecar != (model.Key{}) {
				continue // its Sidecar has gone, and its proxies with it
			}
			requireEmptyScope(t, s)
			require.Empty(t, have[k].Endpoints, k.String())
			require.Empty(t, have[k].VirtualHosts, k.String())
			require.Empty(t, have[k].RouteConfigs, k.String())
			require.Empty(t, have[k].Scopes, k.String())
			require.Empty(t, have[k].Secrets, k.String())
			require.Empty(t, have[k].Names, k.String())
			require.Empty(t, have[k].Extensions, k.String())
			require.Empty(t, have[k].Bootstraps, k.String())
		}
	}
}

func removeAll(snap *store.Snapshot) []store.Event {
	var out []store.Event
	for _, kind := range model.Kinds {
		for o := range snap.All(kind) {
			out = append(out, store.Event{Key: o.Metadata().Key})
		}
	}
	return out
}

func requireEmptyScope(t *testing.T, s *proxyGroup) {
	t.Helper()
	s.dependents.Replace(unit{kind: unitWasm}, nil)
	require.Empty(t, s.filters.Plugins)
	s.dependents.Replace(unit{kind: unitTelemetry}, nil) // it asks for Telemetries, whether or not there are any
	require.Empty(t, s.fixed.collectors)
	require.Empty(t, s.hosts)
	require.Empty(t, s.refs)
	require.Empty(t, s.secrets)
	require.Empty(t, s.agent.names)
	require.Empty(t, s.agent.extensions)
	require.Empty(t, s.agent.bootstraps)
	require.Empty(t, s.listeners)
	require.Empty(t, s.domains)
	require.Empty(t, s.routes.byListener)
	require.Empty(t, s.routes.users)
	require.Empty(t, s.served)
	if s.shards != nil {
		require.Empty(t, s.shards.routes)
	}
	require.Empty(t, s.dirty)
	require.Empty(t, s.patches.addedHosts)
	requireEmptyRouter(t, s)
	require.True(t, s.patches.now == nil || len(s.patches.now.List) == 0)
	s.dependents.Replace(unit{kind: unitPatches}, nil) // it asks for its namespace
	s.dependents.Replace(unit{kind: unitInbound}, nil) // it asks for its own labels
	require.True(t, s.dependents.IsEmpty())
}
