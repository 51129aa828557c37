package derive

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/bucket"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/store"
	"github.com/moonsail/moonsail/internal/view"
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
			w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), telemetries: seed%2 == 1, secrets: seed%4 < 2, gateways: seed%3 == 0}
			st, d := store.New(), New(model.DefaultMesh(), 2)
			d.SetSplit(splitSoon)
			have := live(w, st, d, 40)
			requireScratch(t, st.Snapshot(), have, d)
		})
	}
}

// live applies random batches and opens scopes meanwhile; it gives what clients of the
// scopes hold in the end.
func live(w *world, st *store.Store, d *Deriver, batches int) map[ScopeKey]*Delta {
	have := map[ScopeKey]*Delta{}
	for range batches {
		_, changes := st.Apply(randomBatch(w))
		for k, delta := range d.Apply(changes).Deltas {
			merge(have[k], delta)
		}
		open(w, d, have)
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
func open(w *world, d *Deriver, have map[ScopeKey]*Delta) {
	outbound, inbound := d.Index().Keys(w.proxy())
	for _, k := range []ScopeKey{outbound, inbound} {
		if delta := d.Open(k); delta != nil {
			have[k] = newDelta()
			merge(have[k], delta)
		}
	}
}

// requireScratch: of what a scope was before there is nothing but which route configurations it
// keeps in buckets, as if its key said so.
func requireScratch(t *testing.T, snap *store.Snapshot, have map[ScopeKey]*Delta, d *Deriver) {
	t.Helper()
	scratch := New(model.DefaultMesh(), 1)
	scratch.SetSplit(splitSoon)
	var all []store.Change
	for _, kind := range model.Kinds {
		for o := range snap.All(kind) {
			all = append(all, store.Change{Key: o.Metadata().Key, New: o})
		}
	}
	scratch.Apply(all)
	for k, got := range have {
		if scratch.Index().sidecar(k.Sidecar) == nil && k.Sidecar != (model.Key{}) {
			continue // its proxies have moved
		}
		want := newDelta()
		k.Split = d.SplitIn(k)
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

// TestNoDuplicateDomains holds what Envoy would refuse: two virtual hosts of a route
// configuration with one domain.
func TestNoDuplicateDomains(t *testing.T) {
	for seed := range lives(25) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 2)), secrets: seed%2 == 0, gateways: seed%3 == 0}
		st, d := store.New(), New(model.DefaultMesh(), 1)
		d.SetSplit(splitSoon)
		have := live(w, st, d, 60)
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
		require.NotEmpty(t, vh.Domains, name)
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
		requireDisjoint(t, l)
		requireServed(t, k, l)
		for _, c := range l.Chains {
			if c.HTTP != nil && c.HTTP.BucketBits > 0 && l.Name != bucket.Listener {
				requireParts(t, v, c.HTTP)
			} else if c.HTTP != nil && c.HTTP.RouteConfig != "" && l.Name != bucket.Listener {
				require.NotNil(t, v.RouteConfigs[c.HTTP.RouteConfig], "%s: %s", k, l.Name)
			}
		}
	}
	for name, e := range v.Endpoints {
		require.NotNil(t, v.Clusters[name], "%s: endpoints of no cluster %s", k, name)
		requireDense(t, e)
	}
	for name, secret := range v.Secrets {
		if model.IsConfigMap(name) {
			require.Zero(t, secret.PrivateKey, name)
			continue
		}
		require.True(t, k.Account != "" && (secret.PrivateKey.PEM() == "" || k.Account == "reader"), "%s: %s", k, name)
	}
	for _, c := range v.Clusters {
		require.False(t, c.MeshTLS() && !k.Identity, "%s: %s waits for certificates that nobody serves", k, c.Name)
		if c.Discovery == 0 && !c.Inbound {
			require.Contains(t, v.Endpoints, c.Name, k.String())
			require.False(t, c.AutoTLS && !v.Endpoints[c.Name].TellPlain, "%s: %s: endpoints without a sidecar get TLS", k, c.Name)
		}
	}
}

// requireServed checks that a listener waits for certificates only where they are served,
// and that nothing but mutual TLS gets to where a chain asks for it alone.
func requireServed(t *testing.T, k ScopeKey, l *view.Listener) {
	t.Helper()
	mutual, plain := map[uint32]bool{}, map[uint32]bool{}
	for _, c := range l.Chains {
		require.False(t, c.TLS != nil && c.TLS.IsMesh() && !k.Identity, "%s: %s", k, c.Name)
		port := c.Match.DestinationPort
		mutual[port] = mutual[port] || c.TLS != nil
		plain[port] = plain[port] || c.TLS == nil
	}
	if l.Default == nil || k.Type == model.ProxyRouter {
		return
	}
	for port := range mutual {
		require.True(t, plain[port] || !mutual[port], "%s: %s: the default chain takes what port %d refuses", k, l.Name, port)
	}
}

// requireDisjoint checks what Envoy refuses in a listener: two filter chains that match
// the same, where each of a chain's addresses and server names counts by itself.
func requireDisjoint(t *testing.T, l *view.Listener) {
	t.Helper()
	seen := map[string]string{}
	for _, c := range l.Chains {
		for _, match := range singleMatches(c.Match) {
			require.Empty(t, seen[match], "%s: chains %s and %s both match %s", l.Name, seen[match], c.Name, match)
			seen[match] = c.Name
		}
	}
}

func singleMatches(m view.ChainMatch) []string {
	destinations := []string{""}
	if len(m.Destinations) > 0 {
		destinations = nil
	}
	for _, d := range m.Destinations {
		destinations = append(destinations, d.Masked().String())
	}
	names := m.ServerNames
	if len(names) == 0 {
		names = []string{""}
	}
	var out []string
	for _, d := range destinations {
		for _, n := range names {
			out = append(out, fmt.Sprint(m.DestinationPort, " to ", d, " for ", n, " by ", m.TransportProtocol, m.ALPN))
		}
	}
	return out
}

// requireDense checks that priorities have no gaps, as Envoy wants them.
func requireDense(t *testing.T, e *view.Endpoints) {
	t.Helper()
	next := uint32(0)
	for _, l := range e.Localities {
		require.LessOrEqual(t, l.Priority, next, "%s: a gap before priority %d", e.Cluster, l.Priority)
		if l.Priority == next {
			next++
		}
		require.NotEmpty(t, l.Endpoints, e.Cluster)
	}
}

// TestNothingIsLeft holds that scopes and index forget: once all objects are gone, so is
// everything that was derived of them.
func TestNothingIsLeft(t *testing.T) {
	for seed := range lives(15) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 3)), telemetries: seed%2 == 1, secrets: seed%4 < 2, gateways: seed%3 == 0}
		st, d := store.New(), New(model.DefaultMesh(), 1)
		d.SetSplit(splitSoon)
		have := live(w, st, d, 60)
		_, changes := st.Apply(removeAll(st.Snapshot()))
		for k, delta := range d.Apply(changes).Deltas {
			merge(have[k], delta)
		}
		requireEmptyIndex(t, d.index)
		for k, s := range d.scopes {
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
	require.Equal(t, nearness{namespaces: map[string]model.Distribution{}}, x.near)
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

func requireEmptyScope(t *testing.T, s *scope) {
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
