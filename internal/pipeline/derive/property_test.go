package derive

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/gateway"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/test/randommesh"
)

// merge applies a delta to the values that a client of the group has.
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

// TestIncrementalEqualsFromScratch checks the main invariant of derive: after any sequence of events, in any batches, each
// group equals one that is derived from scratch. Every other mesh has automatic delivery. Its decisions are part of the groups'
// keys, so they are an input here. In the other meshes, gateways get only clusters that something uses.
func TestIncrementalEqualsFromScratch(t *testing.T) {
	for seed := range lives(80) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w, mesh := randommesh.New(seed, 1), randommesh.Mesh()
			if seed%2 == 1 {
				mesh.Delivery, mesh.OnDemandFrom = model.DeliverAuto, 4
			}
			mesh.GatewayClustersOfRoutes = seed%2 == 0
			st, d := store.New(), New(mesh, 2)
			d.SetSharding(splitSoon)
			have := live(w, st, d, 40)
			requireScratch(t, st.Snapshot(), have, d, mesh)
		})
	}
}

// splitSoon splits the route configurations of the small universe.
var splitSoon = Sharding{From: 3, Bits: 3}

// live applies random batches and opens groups meanwhile. It returns what clients of the groups have in the end.
func live(w *randommesh.World, st *store.Store, d *Deriver, batches int) map[GroupKey]*Delta {
	have := map[GroupKey]*Delta{}
	for range batches {
		_, changes := st.Apply(randomBatch(w))
		for k, delta := range d.Apply(changes).Deltas {
			merge(have[k], delta)
		}
		open(w, d, have)
		if w.Chance(0.1) {
			closeOne(w, d, have)
		}
	}
	return have
}

func randomBatch(w *randommesh.World) []store.Event {
	in := store.NewIntake()
	for range 1 + w.IntN(4) {
		in.Put(w.Event())
	}
	return in.Take()
}

// open opens the groups of a random proxy.
func open(w *randommesh.World, d *Deriver, have map[GroupKey]*Delta) {
	p := w.Proxy()
	p.OnDemand = d.Index().Mesh().Delivery == model.DeliverAuto
	outbound, inbound := d.Index().Keys(p)
	for _, k := range []GroupKey{outbound, inbound} {
		if delta := d.Open(k); delta != nil {
			have[k] = newDelta()
			merge(have[k], delta)
		}
	}
}

// closeOne closes a group, as after its last proxy.
func closeOne(w *randommesh.World, d *Deriver, have map[GroupKey]*Delta) {
	k := randommesh.Pick(w, d.Groups())
	d.Close(k)
	delete(have, k)
}

// requireScratch checks that a group depends on its past only in which route configurations it keeps in shards, as if its
// key named them, and in which clusters it keeps as not on demand.
func requireScratch(t *testing.T, snap *store.Snapshot, have map[GroupKey]*Delta, d *Deriver, mesh *model.Mesh) {
	t.Helper()
	scratch := New(mesh, 1)
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
		precedes := d.groups[k].precedes.names
		k.Sharded = d.ShardedIn(k)
		scratch.Close(k)
		merge(want, scratch.Open(k))
		for name, c := range want.Clusters {
			c.OnDemand = c.OnDemand && !precedes[name]
		}
		if reflect.DeepEqual(want, got) {
			continue // far cheaper than to look for differences
		}
		if diff := cmp.Diff(want, got, sameViews...); diff != "" {
			require.Fail(t, "incremental differs from scratch", "group %s\n%s", k, diff)
		}
	}
}

// TestNoDuplicateDomains checks that no two virtual hosts of a route configuration have one domain, which Envoy refuses.
func TestNoDuplicateDomains(t *testing.T) {
	for seed := range lives(25) {
		w := &randommesh.World{Rand: rand.New(rand.NewPCG(seed, 2)), Secrets: seed%2 == 0, Gateways: seed%3 == 0}
		st, d := store.New(), New(randommesh.Mesh(), 1)
		d.SetSharding(splitSoon)
		have := live(w, st, d, 60)
		for k, values := range have {
			requireSound(t, k, values)
		}
	}
}

// TestNamesOfOneProxy checks that a proxy's two groups have no cluster and no listener of one name. Envoy refuses both.
func TestNamesOfOneProxy(t *testing.T) {
	for seed := range lives(25) {
		w := randommesh.New(seed, 3)
		st, d := store.New(), New(randommesh.Mesh(), 1)
		for range 60 {
			_, changes := st.Apply(randomBatch(w))
			d.Apply(changes)
		}
		for range 20 {
			p := w.Proxy()
			outbound, inbound := d.Index().Keys(p)
			d.Close(outbound)
			d.Close(inbound)
			out, in := d.Open(outbound), d.Open(inbound)
			for name := range in.Clusters {
				require.NotContains(t, out.Clusters, name, "seed %d: clusters of %s and %s", seed, outbound, inbound)
			}
			for name := range in.Listeners {
				require.NotContains(t, out.Listeners, name, "seed %d: listeners of %s and %s", seed, outbound, inbound)
			}
		}
	}
}

// requireSound checks references between the resources of one group.
func requireSound(t *testing.T, k GroupKey, v *Delta) {
	t.Helper()
	seen := map[string]string{}
	for name, vh := range v.VirtualHosts {
		require.NotEmpty(t, vh.Domains, name) // its route configuration may not exist: virtual services alone use none
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
			if c.HTTP != nil && c.HTTP.ShardBits > 0 && l.Name != routeshard.Listener {
				requireParts(t, v, c.HTTP)
			} else if c.HTTP != nil && c.HTTP.RouteConfig != "" && l.Name != routeshard.Listener {
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
		require.False(t, c.MeshTLS() && !k.Identity, "%s: %s waits for certificates that are not served", k, c.Name)
		if c.Discovery == 0 && !c.Inbound {
			require.Contains(t, v.Endpoints, c.Name, k.String())
			require.False(t, c.AutoTLS && !v.Endpoints[c.Name].MarksPlaintext, "%s: %s: endpoints without a sidecar get TLS", k, c.Name)
		}
	}
}

// requireServed checks that a listener waits for certificates only where they are served,
// and that nothing but mutual TLS gets to where a chain asks for it alone.
func requireServed(t *testing.T, k GroupKey, l *ir.Listener) {
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
func requireDisjoint(t *testing.T, l *ir.Listener) {
	t.Helper()
	seen := map[string]string{}
	for _, c := range l.Chains {
		for _, match := range singleMatches(c.Match) {
			require.Empty(t, seen[match], "%s: chains %s and %s both match %s", l.Name, seen[match], c.Name, match)
			seen[match] = c.Name
		}
	}
}

func singleMatches(m ir.ChainMatch) []string {
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
func requireDense(t *testing.T, e *ir.Endpoints) {
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

// TestNothingIsLeft checks that groups and the index forget: once all objects are gone, so is everything that was derived
// from them.
func TestNothingIsLeft(t *testing.T) {
	for seed := range lives(15) {
		w := randommesh.New(seed, 3)
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
			requireEmptyGroup(t, s)
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

func requireEmptyGroup(t *testing.T, s *proxyGroup) {
	t.Helper()
	s.dependents.Replace(unit{kind: unitWasm}, nil)
	require.Empty(t, s.filters.Plugins)
	s.dependents.Replace(unit{kind: unitTelemetry}, nil) // it asks for Telemetries, whether or not there are any
	s.dependents.Replace(unit{kind: unitProviders}, nil)
	require.Empty(t, s.fixed.providers)
	require.Empty(t, s.hosts)
	require.Empty(t, s.refs)
	if s.router != nil {
		require.Empty(t, s.router.hosts)
		require.Empty(t, s.router.connections)
	}
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

// requireEmptyRouter: a router asks for Gateways, whether there are any.
func requireEmptyRouter(t *testing.T, s *proxyGroup) {
	t.Helper()
	if s.router == nil {
		return
	}
	require.Equal(t, gateway.NewPlan(), s.router.plan)
	require.Empty(t, s.router.hosts)
	require.Empty(t, s.router.dynamic)
	require.Empty(t, s.fixed.gatewayTLS)
	s.dependents.Replace(unit{kind: unitGateways}, nil)
}
