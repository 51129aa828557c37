package derive

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/bucket"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/store"
	"github.com/moonsail/moonsail/internal/view"
)

// requireParts: where a listener looks for buckets, all are there.
func requireParts(t *testing.T, v *Delta, http *view.HTTPChain) {
	t.Helper()
	for k := range bucket.Count(http.BucketBits) {
		part := bucket.Name(http.RouteConfig, http.BucketBits, k)
		require.NotNil(t, v.Scopes[part], part)
		require.NotNil(t, v.RouteConfigs[part], part)
		require.True(t, v.RouteConfigs[part].Bucket, part)
	}
}

// joined makes whole route configurations of their parts.
func joined(t *testing.T, d *Delta) *Delta {
	t.Helper()
	out := newDelta()
	for name := range d.RouteConfigs {
		rc := bucket.RouteConfig(name)
		out.RouteConfigs[rc] = &view.RouteConfig{Name: rc}
		require.Equal(t, rc != name, d.Scopes[name] != nil, name)
	}
	for _, part := range d.VirtualHosts {
		v := *part
		v.RouteConfig = bucket.RouteConfig(part.RouteConfig)
		if have := out.VirtualHosts[v.ResourceName()]; have != nil {
			v.Domains = append(slices.Clone(have.Domains), v.Domains...)
		}
		v.Domains = slices.Compact(slices.Sorted(slices.Values(v.Domains)))
		out.VirtualHosts[v.ResourceName()] = &v
	}
	return out
}

// TestPartsAreTheWhole: split or not, a host has the same routes, and each domain is in all
// buckets in which hosts that it matches are looked for, and in no other.
func TestPartsAreTheWhole(t *testing.T) {
	levels := map[int]bool{}
	for seed := range uint64(16) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 5))}
		st, d := store.New(), New(model.DefaultMesh(), 1)
		d.SetSplitFrom(1)
		for k, got := range live(w, st, d, 90) {
			if !k.Scoped || d.index.sidecar(k.Sidecar) == nil && k.Sidecar != (model.Key{}) {
				continue
			}
			whole := k
			whole.Scoped = false
			d.Close(whole)
			want := d.Open(whole)
			for _, v := range want.VirtualHosts {
				if v != nil {
					v.Domains = slices.Sorted(slices.Values(v.Domains))
				}
			}
			maps.DeleteFunc(want.VirtualHosts, func(_ string, v *view.VirtualHost) bool { return v == nil })
			maps.DeleteFunc(want.RouteConfigs, func(_ string, v *view.RouteConfig) bool { return v == nil })
			have := joined(t, got)
			require.Empty(t, cmp.Diff(want.VirtualHosts, have.VirtualHosts, sameViews...), k.String())
			require.Empty(t, cmp.Diff(want.RouteConfigs, have.RouteConfigs, sameViews...), k.String())
			requirePlaced(t, got, levels)
		}
	}
	require.Equal(t, map[int]bool{4: true, 6: true}, levels, "both sizes were there")
}

func requirePlaced(t *testing.T, d *Delta, levels map[int]bool) {
	t.Helper()
	for name, v := range d.VirtualHosts {
		rc := bucket.RouteConfig(v.RouteConfig)
		for bits := range bucket.MaxBits {
			for k := range bucket.Count(bits) {
				if bucket.Name(rc, bits, k) != v.RouteConfig {
					continue
				}
				levels[bits] = true
				for _, domain := range v.Domains {
					require.True(t, bucket.Takes(domain, bits, k), "%s: %s", name, domain)
				}
			}
		}
	}
}

// grown is a mesh of so many services of one port.
func grown(d *Deriver, st *store.Store, from, to int) map[ScopeKey]*Delta {
	var events []store.Event
	for i := from; i < to; i++ {
		s := &model.Service{Ports: []model.ServicePort{{Name: "http", Number: 80, Protocol: model.ProtocolHTTP}}}
		s.Key = model.Key{Kind: model.KindService, Namespace: "shop", Name: fmt.Sprintf("svc-%d", i)}
		s.Hostname = model.ResolveHost(s.Name, s.Namespace, "cluster.local")
		events = append(events, store.Event{Key: s.Key, Object: s})
	}
	_, changes := st.Apply(events)
	return d.Apply(changes).Deltas
}

// bitsOf is what a listener's connection manager looks for; -1 without one.
func bitsOf(l *view.Listener) int {
	for _, c := range append(slices.Clone(l.Chains), *l.Default) {
		if c.HTTP != nil {
			return c.HTTP.BucketBits
		}
	}
	return -1
}

// TestSplitCostsWhatChanges: a new service puts out its own parts, and nothing of others.
func TestSplitCostsWhatChanges(t *testing.T) {
	d, st := New(model.DefaultMesh(), 1), store.New()
	out, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "shop", ScopedRoutes: true})
	d.Open(out)
	require.Empty(t, grown(d, st, 0, SplitFrom-1)[out].Scopes)

	first := grown(d, st, SplitFrom-1, SplitFrom)[out]
	require.Len(t, first.Scopes, bucket.Count(4))
	require.Equal(t, 4, bitsOf(first.Listeners["0.0.0.0_80"]))
	require.Contains(t, first.RouteConfigs, "80")
	require.Nil(t, first.RouteConfigs["80"])

	next := grown(d, st, SplitFrom, SplitFrom+1)[out]
	require.Empty(t, next.Scopes)
	require.Empty(t, next.RouteConfigs)
	for name, v := range next.VirtualHosts {
		if v != nil {
			require.True(t, strings.HasSuffix(name, fmt.Sprintf("/svc-%d.shop.svc.cluster.local:80", SplitFrom)), name)
		}
	}

	grown(d, st, SplitFrom+1, 8*SplitFrom-1)
	last := grown(d, st, 8*SplitFrom-1, 8*SplitFrom)[out]
	require.Len(t, last.Scopes, bucket.Count(4)+bucket.Count(6))
	require.Equal(t, 6, bitsOf(last.Listeners["0.0.0.0_80"]))
}
