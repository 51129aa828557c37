package derive

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
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

// partOf is the bits of the form that a route configuration, or a part of one, belongs to, and
// which part it is.
func partOf(name string) (bits, k int) {
	rc := bucket.RouteConfig(name)
	for _, s := range sizes[1:] {
		number, ok := strings.CutPrefix(name, strings.TrimSuffix(bucket.Name(rc, s.bits, 0), "0"))
		if k, err := strconv.Atoi(number); ok && err == nil {
			return s.bits, k
		}
	}
	return 0, 0
}

// joined makes whole route configurations of their parts of one form.
func joined(t *testing.T, d *Delta, bits int) *Delta {
	t.Helper()
	out := newDelta()
	for name := range d.RouteConfigs {
		rc := bucket.RouteConfig(name)
		require.Equal(t, rc != name, d.Scopes[name] != nil, name)
		if of, _ := partOf(name); of == bits {
			out.RouteConfigs[rc] = &view.RouteConfig{Name: rc}
		}
	}
	for _, part := range d.VirtualHosts {
		if of, _ := partOf(part.RouteConfig); of != bits {
			continue
		}
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

// TestPartsAreTheWhole: in whichever form, a host has the same routes, and each domain is in all
// buckets in which hosts that it matches are looked for, and in no other. There is a form that
// listeners use, and no part of a form without the others.
func TestPartsAreTheWhole(t *testing.T) {
	levels, together := map[int]bool{}, map[forms]bool{}
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
			there := requireForms(t, k, want, got)
			for _, f := range there {
				together[f] = true
			}
			requirePlaced(t, got, levels)
		}
	}
	require.Equal(t, map[int]bool{4: true, 8: true}, levels, "both sizes were there")
	for _, there := range []forms{{true, true}, {false, true}, {false, true, true}} {
		require.True(t, together[there], "%v: there were %v", there, together)
	}
}

// requireForms: each form of a route configuration is either not there or is the whole. It
// tells which were there, by route configuration.
func requireForms(t *testing.T, k ScopeKey, want, got *Delta) map[string]forms {
	t.Helper()
	there := map[string]forms{}
	for f, size := range sizes {
		have := joined(t, got, size.bits)
		for rc, v := range have.RouteConfigs {
			require.Empty(t, cmp.Diff(want.RouteConfigs[rc], v, sameViews...), k.String())
			list := there[rc]
			list[f] = true
			there[rc] = list
		}
		for name, v := range want.VirtualHosts {
			if have.RouteConfigs[v.RouteConfig] != nil || f == 0 && want.RouteConfigs[v.RouteConfig] == nil {
				require.Empty(t, cmp.Diff(v, have.VirtualHosts[name], sameViews...), k.String())
			}
		}
	}
	for rc := range want.RouteConfigs {
		require.NotEqual(t, forms{}, there[rc], "%s: %s", k, rc)
	}
	return there
}

func requirePlaced(t *testing.T, d *Delta, levels map[int]bool) {
	t.Helper()
	for name, v := range d.VirtualHosts {
		bits, k := partOf(v.RouteConfig)
		if bits == 0 {
			continue
		}
		levels[bits] = true
		for _, domain := range v.Domains {
			require.True(t, bucket.Takes(domain, bits, k), "%s: %s", name, domain)
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

// TestSplitCostsWhatChanges: a new service puts out its own parts, and nothing of others but where
// a form comes or goes. Where listeners go over to another form, it is there before and after.
func TestSplitCostsWhatChanges(t *testing.T) {
	d, st := New(model.DefaultMesh(), 1), store.New()
	out, _ := d.Index().Keys(&model.Proxy{Type: model.ProxySidecar, Namespace: "shop", ScopedRoutes: true})
	d.Open(out)
	const next = 8 * SplitFrom
	few, many := bucket.Count(4), bucket.Count(8)
	size := 0
	for _, step := range []struct {
		at         int // services
		come, gone int // scopes
		bits       int // that listeners look for then
		whole      bool
	}{
		{at: SplitFrom - SplitFrom/4, come: few, bits: 0, whole: true},
		{at: SplitFrom, bits: 4, whole: true},
		{at: 2 * SplitFrom, bits: 4},
		{at: next - next/4, come: many, bits: 4},
		{at: next, bits: 8},
		{at: next + next/4, gone: few, bits: 8},
	} {
		grown(d, st, size, step.at-1)
		got := grown(d, st, step.at-1, step.at)[out]
		require.Equal(t, step.bits, bitsOf(got.Listeners["0.0.0.0_80"]), "%d", step.at)
		come, gone := 0, 0
		for name, v := range got.Scopes {
			require.Equal(t, v == nil, got.RouteConfigs[name] == nil, name)
			if v != nil {
				come++
			} else {
				gone++
			}
		}
		require.Equal(t, [2]int{step.come, step.gone}, [2]int{come, gone}, "%d", step.at)
		if step.at == 2*SplitFrom {
			require.Contains(t, got.RouteConfigs, "80")
			require.Nil(t, got.RouteConfigs["80"], "the whole one goes")
		}
		if step.come+step.gone == 0 && step.at != 2*SplitFrom {
			requireOnlyOf(t, got, step.at-1)
		}

		after := grown(d, st, step.at, step.at+1)[out]
		require.Empty(t, after.Scopes)
		require.Empty(t, after.RouteConfigs)
		requireOnlyOf(t, after, step.at)
		require.Equal(t, step.whole, after.VirtualHosts[fmt.Sprintf("80/svc-%d.shop.svc.cluster.local:80", step.at)] != nil, "%d", step.at)
		size = step.at + 1
	}
}

// requireOnlyOf: of no service but one there is a virtual host.
func requireOnlyOf(t *testing.T, d *Delta, service int) {
	t.Helper()
	for name, v := range d.VirtualHosts {
		if v != nil && isServiceHost(name[strings.LastIndexByte(name, '/')+1:]) {
			require.True(t, strings.HasSuffix(name, fmt.Sprintf("/svc-%d.shop.svc.cluster.local:80", service)), name)
		}
	}
}
