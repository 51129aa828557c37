package derive

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// merge lays a delta over the views that a client of the scope holds.
func merge(have, d *Delta) {
	mergeMap(have.Clusters, d.Clusters)
	mergeMap(have.Endpoints, d.Endpoints)
	mergeMap(have.Secrets, d.Secrets)
	mergeMap(have.Names, d.Names)
	mergeMap(have.Extensions, d.Extensions)
	mergeMap(have.Bootstraps, d.Bootstraps)
	mergeMap(have.Scopes, d.Scopes)
	mergeMap(have.Listeners, d.Listeners)
	mergeMap(have.RouteConfigs, d.RouteConfigs)
	mergeMap(have.VirtualHosts, d.VirtualHosts)
	if d.Unfetched != nil {
		have.Unfetched = d.Unfetched
	}
	if d.Patches != nil {
		have.Patches = d.Patches
	}
	if have.Patches != nil && len(have.Patches.List) == 0 {
		have.Patches = nil
	}
}

func mergeMap[V any](have, d map[string]*V) {
	maps.Copy(have, d)
	maps.DeleteFunc(have, func(_ string, v *V) bool { return v == nil })
}

var sameViews = []cmp.Option{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b *regexp.Regexp) bool { return reflect.DeepEqual(a, b) }), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}

// lives is how many random sequences of events are tried of n; -short is for the race detector, with which one
// takes ten times as long, and there is one goroutine.
func lives(n uint64) uint64 {
	if testing.Short() {
		return max(n/8, 3)
	}
	return n
}

// TestIncrementalEqualsFromScratch is what makes the engine trustworthy: after any sequence
// of events, in any batches, each scope is as if it had been derived from nothing.
func TestIncrementalEqualsFromScratch(t *testing.T) {
	for seed := range lives(80) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := worldOf(seed, 1)
			st, d := store.New(), New(worldMesh(), 2)
			d.SetSharding(splitSoon)
			have := live(w, st, d, 40)
			requireScratch(t, st.Snapshot(), have, d)
		})
	}
}

// live applies random batches and opens scopes meanwhile; it gives what clients of the
// scopes hold in the end.
func live(w *world, st *store.Store, d *Deriver, batches int) map[GroupKey]*Delta {
	have := map[GroupKey]*Delta{}
	for range batches {
		_, changes := st.Apply(randomBatch(w))
		for k, delta := range d.Apply(changes).Deltas {
			merge(have[k], delta)
		}
		open(w, d, have)
		if w.chance(0.1) {
			closeOne(w, d, have)
		}
	}
	return have
}

func randomBatch(w *world) []store.Event {
	in := store.NewIntake()
	for range 1 + w.IntN(4) {
		in.Put(w.event())
	}
	return in.Take()
}

// open opens the scopes of a random proxy.
func open(w *world, d *Deriver, have map[GroupKey]*Delta) {
	outbound, inbound := d.Index().Keys(w.proxy())
	for _, k := range []GroupKey{outbound, inbound} {
		if delta := d.Open(k); delta != nil {
			have[k] = newDelta()
			merge(have[k], delta)
		}
	}
}

// closeOne closes a scope, as if its last proxy had gone.
func closeOne(w *world, d *Deriver, have map[GroupKey]*Delta) {
	k := pick(w, d.Groups())
	d.Close(k)
	delete(have, k)
}

// requireScratch: of what a scope was before there is nothing but which route configurations it
// keeps in buckets, as if its key said so.
func requireScratch(t *testing.T, snap *store.Snapshot, have map[GroupKey]*Delta, d *Deriver) {
	t.Helper()
	scratch := New(worldMesh(), 1)
	scratch.SetSharding(splitSoon)
	var all []store.Change
	for _, kind := range model.Kinds {
		for o := range snap.All(kind) {
			all = append(all, store.Change{Key: o.Metadata().Key, New: o})
		}
	}
	scratch.Apply(all)
	for k, got := range have {
		if scratch.Index().Sidecar(k.Sidecar) == nil && k.Sidecar != (model.Key{}) {
			continue // its proxies have moved
		}
		want := newDelta()
		k.Sharded = d.ShardedIn(k)
		scratch.Close(k)
		merge(want, scratch.Open(k))
		if reflect.DeepEqual(want, got) {
			continue // far cheaper than to look for differences
		}
		if diff := cmp.Diff(want, got, sameViews...); diff != "" {
			require.Fail(t, "incremental differs from scratch", "scope %s\n%s", k, diff)
		}
	}
}
