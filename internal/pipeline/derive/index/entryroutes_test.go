package index

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/store"
)

// TestRouteFollowsEntry checks that a route with a ServiceEntry as its parent is for the hosts that the ServiceEntry has.
func TestRouteFollowsEntry(t *testing.T) {
	x := New(&model.Mesh{RootNamespace: "istio-system"})
	entry := model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: "partner"}
	route := &model.VirtualService{
		Meta:     model.Meta{Key: model.Key{Kind: model.KindHTTPRoute, Namespace: "shop", Name: "partner"}},
		Gateways: []string{model.GatewayMesh}, Hosts: []model.Host{"*"},
		Parents: []model.MeshParent{{Namespace: "shop", Entry: &entry}},
	}
	was := map[model.Key]model.Object{}
	apply := func(k model.Key, now model.Object) *Touched {
		t.Helper()
		touched := x.Apply([]store.Change{{Key: k, Old: was[k], New: now}})
		was[k] = now
		return touched
	}
	with := func(hosts ...model.Host) *model.ServiceEntry {
		return &model.ServiceEntry{Meta: model.Meta{Key: entry}, Hosts: hosts}
	}
	requireRouted := func(hosts ...model.Host) {
		t.Helper()
		var got []model.Host
		for h, list := range x.routes {
			require.Len(t, list, 1)
			require.True(t, list[0].ForPort(h, 80))
			got = append(got, h)
		}
		slices.Sort(got)
		require.Equal(t, hosts, got)
	}
	apply(route.Key, route)
	requireRouted()
	require.NotEmpty(t, apply(entry, with("a.example.com", "b.example.com")).Routes)
	requireRouted("a.example.com", "b.example.com")
	require.NotEmpty(t, apply(entry, with("b.example.com", "c.example.com")).Routes)
	requireRouted("b.example.com", "c.example.com")
	require.Empty(t, apply(entry, with("b.example.com", "c.example.com")).Routes)
	apply(entry, nil)
	requireRouted()
	apply(entry, with("a.example.com"))
	apply(route.Key, nil)
	requireRouted()
	require.NotContains(t, x.Sizes(), "entryRoutes.all")
}

// TestPolicyOfEntry checks that a BackendTLSPolicy for a ServiceEntry is found by its hosts, whichever comes first, and that
// its changes touch them.
func TestPolicyOfEntry(t *testing.T) {
	x := New(&model.Mesh{RootNamespace: "istio-system"})
	entry := &model.ServiceEntry{
		Meta:  model.Meta{Key: model.Key{Kind: model.KindServiceEntry, Namespace: "shop", Name: "partner"}},
		Hosts: []model.Host{"a.example.com", "b.example.com"},
	}
	policy := &model.BackendTLSPolicy{
		Meta:    model.Meta{Key: model.Key{Kind: model.KindBackendTLSPolicy, Namespace: "shop", Name: "partner"}},
		Targets: []model.BackendTarget{{Entry: "partner"}},
	}
	found := func() (n int) {
		for _, s := range entry.Services() {
			n += len(x.NewReader(NewClient(GroupKey{Namespace: "shop"}, nil)).BackendTLSPolicies(s))
		}
		return n
	}
	change := func(old, now model.Object) *Touched {
		k := policy.Key
		if o, ok := old.(*model.ServiceEntry); ok {
			k = o.Key
		}
		if o, ok := now.(*model.ServiceEntry); ok {
			k = o.Key
		}
		return x.Apply([]store.Change{{Key: k, Old: old, New: now}})
	}
	change(nil, policy)
	require.Equal(t, 2, found())
	change(nil, entry)
	change(policy, nil)
	require.Zero(t, found())
	touched := change(nil, policy)
	require.Equal(t, 2, found())
	require.Equal(t, 1, x.Sizes()["entryTLS"])
	for _, h := range entry.Hosts {
		require.Contains(t, touched.Facts, destinationRuleFact(h))
	}
	change(policy, nil)
	require.NotContains(t, x.Sizes(), "entryTLS")
}
