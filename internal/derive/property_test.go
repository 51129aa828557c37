package derive

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/store"
)

// merge lays a delta over the views that a client of the scope holds.
func merge(have, d *Delta) {
	mergeMap(have.Clusters, d.Clusters)
	mergeMap(have.Endpoints, d.Endpoints)
	mergeMap(have.Listeners, d.Listeners)
	mergeMap(have.RouteConfigs, d.RouteConfigs)
	mergeMap(have.VirtualHosts, d.VirtualHosts)
}

func mergeMap[V any](have, d map[string]*V) {
	maps.Copy(have, d)
	maps.DeleteFunc(have, func(_ string, v *V) bool { return v == nil })
}

var sameViews = []cmp.Option{cmpopts.EquateEmpty(), cmpopts.EquateComparable()}

// TestIncrementalEqualsFromScratch is what makes the engine trustworthy: after any sequence
// of events, in any batches, each scope is as if it had been derived from nothing.
func TestIncrementalEqualsFromScratch(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := &world{Rand: rand.New(rand.NewPCG(seed, 1))}
			st, d := store.New(), New(model.DefaultMesh(), 2)
			have := map[ScopeKey]*Delta{}
			for range 40 {
				_, changes := st.Apply(randomBatch(w))
				for k, delta := range d.Apply(changes).Deltas {
					merge(have[k], delta)
				}
				open(w, d, have)
			}
			requireScratch(t, st.Snapshot(), have)
		})
	}
}

func randomBatch(w *world) []store.Event {
	in := store.NewIntake()
	for range 1 + w.IntN(4) {
		in.Put(w.event())
	}
	return in.Take()
}

// open opens the scopes of a random proxy.
func open(w *world, d *Deriver, have map[ScopeKey]*Delta) {
	outbound, inbound := d.Index().Keys(w.proxy())
	for _, k := range []ScopeKey{outbound, inbound} {
		if delta := d.Open(k); delta != nil {
			have[k] = newDelta()
			merge(have[k], delta)
		}
	}
}

func requireScratch(t *testing.T, snap *store.Snapshot, have map[ScopeKey]*Delta) {
	t.Helper()
	scratch := New(model.DefaultMesh(), 1)
	var all []store.Change
	for _, kind := range model.Kinds {
		for o := range snap.All(kind) {
			all = append(all, store.Change{Key: o.Metadata().Key, New: o})
		}
	}
	scratch.Apply(all)
	for k, got := range have {
		want := newDelta()
		merge(want, scratch.Open(k))
		if diff := cmp.Diff(want, got, sameViews...); diff != "" {
			require.Fail(t, "incremental differs from scratch", "scope %s\n%s", k, diff)
		}
	}
}

// TestNoDuplicateDomains holds what Envoy would refuse: two virtual hosts of a route
// configuration with one domain.
func TestNoDuplicateDomains(t *testing.T) {
	for seed := range uint64(40) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 2))}
		st, d := store.New(), New(model.DefaultMesh(), 1)
		have := map[ScopeKey]*Delta{}
		for range 60 {
			_, changes := st.Apply(randomBatch(w))
			for k, delta := range d.Apply(changes).Deltas {
				merge(have[k], delta)
			}
			open(w, d, have)
		}
		for k, views := range have {
			requireSound(t, k, views)
		}
	}
}

// requireSound checks references between the resources of one scope.
func requireSound(t *testing.T, k ScopeKey, v *Delta) {
	t.Helper()
	seen := map[string]string{}
	for name, vh := range v.VirtualHosts {
		// Where two services claim one address, the loser's own route configuration is unused.
		if !strings.Contains(vh.RouteConfig, ":") {
			require.NotNil(t, v.RouteConfigs[vh.RouteConfig], "%s: %s has no route configuration", k, name)
		}
		for _, dom := range vh.Domains {
			at := vh.RouteConfig + " " + dom
			require.Empty(t, seen[at], "%s: %s: domain %q is also in %s", k, name, dom, seen[at])
			seen[at] = name
		}
	}
	for _, l := range v.Listeners {
		for _, c := range l.Chains {
			if c.HTTP != nil && c.HTTP.RouteConfig != "" {
				require.NotNil(t, v.RouteConfigs[c.HTTP.RouteConfig], "%s: %s", k, l.Name)
			}
		}
	}
	for _, c := range v.Clusters {
		if c.Discovery == 0 && !c.Inbound {
			require.Contains(t, v.Endpoints, c.Name, k.String())
		}
	}
}
