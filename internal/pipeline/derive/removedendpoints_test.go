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
		requireEmptyIndex(t, d.index)
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

func requireEmptyIndex(t *testing.T, x *Index) {
	t.Helper()
	require.Empty(t, x.services)
	require.Empty(t, x.rules)
	require.Empty(t, x.routes)
	require.Empty(t, x.bound)
	require.Empty(t, x.delegate)
	require.Empty(t, x.sidecars)
	require.Empty(t, x.labels)
	require.Equal(t, localityUsage{namespaces: map[string]model.Distribution{}}, x.localityUsage)
	require.Zero(t, x.disabling)
	require.Empty(t, x.policies)
	require.Empty(t, x.secrets)
	require.Empty(t, x.credentials)
	require.Zero(t, x.proxies.versions)
	require.Empty(t, x.proxies.metadata)
	e := x.endpoints
	require.Empty(t, e.slices)
	require.Empty(t, e.workloads)
	require.Empty(t, e.byPair)
	require.Empty(t, e.selecting)
	require.Empty(t, e.kube)
	require.Empty(t, e.podSlices)
	require.Empty(t, e.sets)
	require.Zero(t, e.speaking)
	require.Empty(t, e.identities)
	require.Empty(t, e.at.services)
	require.Empty(t, e.at.indexed)
	require.Empty(t, e.leaving.departures)
	require.Empty(t, e.leaving.listed)
	require.Empty(t, e.leaving.inline)
}

func requireEmptyScope(t *testing.T, s *proxyGroup) {
	t.Helper()
	s.depend(unit{kind: unitWasm}, nil) // likewise
	require.Empty(t, s.plugins)
	s.depend(unit{kind: unitTelemetry}, nil) // it asks for Telemetries, whether there are any
	require.Empty(t, s.collectors)
	require.Empty(t, s.hosts)
	require.Empty(t, s.refs)
	require.Empty(t, s.secretRefs)
	require.Empty(t, s.named)
	require.Empty(t, s.extensions)
	require.Empty(t, s.bootstraps)
	require.Empty(t, s.listeners)
	require.Empty(t, s.domains)
	require.Empty(t, s.routeUses)
	require.Empty(t, s.routeUsers)
	require.Empty(t, s.served)
	if s.split != nil {
		require.Empty(t, s.split.routes)
	}
	require.Empty(t, s.dirty)
	require.Empty(t, s.addedHosts)
	requireEmptyRouter(t, s)
	require.True(t, s.patches == nil || len(s.patches.List) == 0)
	s.depend(unit{kind: unitPatches}, nil)   // it asks for its namespace, whoever is there
	delete(s.asked, unit{kind: unitInbound}) // it asks for its own labels, whoever is there
	require.Empty(t, s.asked)
	if !s.Key.Inbound {
		require.Empty(t, s.dependents)
	}
}
