package table

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

func put(t resource.Type, name, content string) Update {
	return Update{Type: t, Name: name, Resource: encoded(t, name, content)}
}

func gone(t resource.Type, name string) Update { return Update{Type: t, Name: name} }

func changedNames(s *State, t resource.Type, after model.Revision) []string {
	var out []string
	for e := range s.Changed(t, after) {
		out = append(out, e.Name)
	}
	return out
}

func removedNames(s *State, t resource.Type, after model.Revision) []string {
	var out []string
	for n := range s.Removed(t, after) {
		out = append(out, n)
	}
	return out
}

func TestEqualVersionsPublishNothing(t *testing.T) {
	tab := New("t")
	require.Equal(t, 1, tab.Commit(1, []Update{put(resource.Cluster, "a", "1")}))
	s := tab.State()
	require.Equal(t, 0, tab.Commit(2, []Update{put(resource.Cluster, "a", "1"), gone(resource.Cluster, "b")}))
	require.Same(t, s, tab.State())
	require.Equal(t, 3, tab.Commit(3, []Update{put(resource.Cluster, "a", "2"), put(resource.Cluster, "c", "1"), gone(resource.Cluster, "c")}))
	require.Equal(t, model.Revision(3), tab.State().Revision)
}

func TestLastAddedIsABarrierForNamesOnly(t *testing.T) {
	tab := New("t")
	tab.Commit(1, []Update{put(resource.Cluster, "a", "1")})
	tab.Commit(2, []Update{put(resource.Cluster, "a", "2")})
	require.Equal(t, model.Revision(1), tab.State().LastAdded(resource.Cluster))
	require.Equal(t, model.Revision(2), tab.State().LastChanged(resource.Cluster))
	e := tab.State().Get(resource.Cluster, "a")
	require.Equal(t, [2]model.Revision{1, 2}, [2]model.Revision{e.Added, e.Revision})
	tab.Commit(3, []Update{gone(resource.Cluster, "a")})
	tab.Commit(4, []Update{put(resource.Cluster, "a", "2")})
	require.Equal(t, model.Revision(4), tab.State().LastAdded(resource.Cluster))
	require.Empty(t, removedNames(tab.State(), resource.Cluster, 0), "it exists again")
}

func TestRevisionsMustGrow(t *testing.T) {
	tab := New("t")
	tab.Commit(2, []Update{put(resource.Cluster, "a", "1")})
	require.Panics(t, func() { tab.Commit(2, []Update{put(resource.Cluster, "a", "2")}) })
}

// TestLogIsCompacted: the log of a name that changes again and again is bounded.
func TestLogIsCompacted(t *testing.T) {
	tab := New("t")
	for i := range 100 {
		tab.Commit(model.Revision(i+1), []Update{put(resource.Endpoints, fmt.Sprint("e", i), "0")})
	}
	for i := range 10_000 {
		tab.Commit(model.Revision(1000+i), []Update{put(resource.Endpoints, "e7", fmt.Sprint(i))})
		c := tab.State().columns[resource.Endpoints]
		require.LessOrEqual(t, len(c.log), 100+100/2+slack+1)
	}
	require.Equal(t, []string{"e7"}, changedNames(tab.State(), resource.Endpoints, 100))
	require.Len(t, changedNames(tab.State(), resource.Endpoints, 0), 100)
}

func TestTombstonesAreBounded(t *testing.T) {
	tab := New("t")
	for i := range 5000 {
		name := fmt.Sprint("e", i)
		tab.Commit(model.Revision(2*i+1), []Update{put(resource.Endpoints, name, "0")})
		tab.Commit(model.Revision(2*i+2), []Update{gone(resource.Endpoints, name)})
		require.LessOrEqual(t, len(tab.State().columns[resource.Endpoints].graves), 2*minGraves)
		require.LessOrEqual(t, len(tab.graves[resource.Endpoints]), 2*minGraves)
	}
	s := tab.State()
	lost := s.Forgotten(resource.Endpoints)
	require.NotZero(t, lost)
	require.Less(t, lost, s.Revision)
	require.Len(t, removedNames(s, resource.Endpoints, lost), len(s.columns[resource.Endpoints].graves))
}

// TestRemovalsOfACommitAreForgottenTogether: a stream that misses some of them must start over.
func TestRemovalsOfACommitAreForgottenTogether(t *testing.T) {
	tab := New("t")
	var add, drop []Update
	for i := range 5 * minGraves {
		add = append(add, put(resource.Cluster, fmt.Sprint(i), "0"))
		drop = append(drop, gone(resource.Cluster, fmt.Sprint(i)))
	}
	for rev := model.Revision(1); rev < 20; rev += 2 {
		tab.Commit(rev, add)
		tab.Commit(rev+1, drop)
		require.Len(t, removedNames(tab.State(), resource.Cluster, rev), len(drop))
		require.LessOrEqual(t, tab.State().Forgotten(resource.Cluster), rev)
	}
}

func TestWholeRouteConfigurationsFollowTheirVirtualHosts(t *testing.T) {
	tab := New("t")
	tab.Commit(1, []Update{put(resource.VirtualHost, "80/a", "a")})
	require.Nil(t, tab.State().Get(resource.RouteConfig, "80"), "no header yet")
	tab.Commit(2, []Update{put(resource.RouteConfig, "80", ""), put(resource.RouteConfig, "8080", "")})
	v2 := tab.State().Get(resource.RouteConfig, "80").Version
	tab.Commit(3, []Update{put(resource.VirtualHost, "80/b", "b")})
	require.Equal(t, []string{"80"}, changedNames(tab.State(), resource.RouteConfig, 2))
	require.NotEqual(t, v2, tab.State().Get(resource.RouteConfig, "80").Version)
	tab.Commit(4, []Update{gone(resource.VirtualHost, "80/b")})
	require.Equal(t, v2, tab.State().Get(resource.RouteConfig, "80").Version, "the same content as before")
	tab.Commit(5, []Update{gone(resource.RouteConfig, "80")})
	require.Equal(t, []string{"80"}, removedNames(tab.State(), resource.RouteConfig, 4))
	tab.Commit(6, []Update{gone(resource.VirtualHost, "80/a")})
	require.NotContains(t, tab.routes, "80")
}

func TestBatchesAreShared(t *testing.T) {
	tab, pool := New("t"), names.NewPool()
	tab.Commit(1, []Update{put(resource.Endpoints, "a", "1"), put(resource.Endpoints, "b", "1"), put(resource.Endpoints, "c", "1")})
	sel := Selection{Type: resource.Endpoints, Upto: 9, Names: pool.Of("a", "c", "x")}
	b := tab.State().Select(sel)
	require.Same(t, b, tab.State().Select(sel))
	require.Len(t, b.Entries, 2)
	want := append([]byte{}, b.Entries[0].Resource().DeltaField()...)
	want = append(want, b.Entries[1].Resource().DeltaField()...)
	require.Equal(t, want, b.Delta())
	require.Same(t, &b.Delta()[0], &b.Delta()[0])

	vh := Selection{Type: resource.VirtualHost, Upto: 9, Names: pool.Of("80")}
	tab.Commit(2, []Update{put(resource.VirtualHost, "80/a", ""), put(resource.VirtualHost, "8080/a", "")})
	require.Len(t, tab.State().Select(vh).Entries, 1)
	vh.After = 1
	require.Len(t, tab.State().Select(vh).Entries, 1)
}

func BenchmarkCommitOne(b *testing.B) {
	for _, n := range []int{100, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tab := New("t")
			var all []Update
			for i := range n {
				all = append(all, put(resource.Endpoints, fmt.Sprintf("outbound|80||svc-%d.ns.svc.cluster.local", i), "0"))
			}
			tab.Commit(1, all)
			name := "outbound|80||svc-7.ns.svc.cluster.local"
			a, z := put(resource.Endpoints, name, "a"), put(resource.Endpoints, name, "z")
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				tab.Commit(model.Revision(2*i+2), []Update{a})
				tab.Commit(model.Revision(2*i+3), []Update{z})
			}
		})
	}
}

func BenchmarkCommitVirtualHost(b *testing.B) {
	for _, n := range []int{100, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tab := New("t")
			all := []Update{put(resource.RouteConfig, "80", "")}
			for i := range n {
				all = append(all, put(resource.VirtualHost, fmt.Sprintf("80/svc-%d.ns.svc.cluster.local:80", i), "0"))
			}
			tab.Commit(1, all)
			name := "80/svc-7.ns.svc.cluster.local:80"
			a, z := put(resource.VirtualHost, name, "a"), put(resource.VirtualHost, name, "z")
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				tab.Commit(model.Revision(2*i+2), []Update{a})
				tab.Commit(model.Revision(2*i+3), []Update{z})
			}
		})
	}
}

func TestTouched(t *testing.T) {
	tab := New("t")
	tab.Commit(3, []Update{put(resource.Cluster, "a", "1"), put(resource.Cluster, "b", "1")})
	tab.Commit(5, []Update{put(resource.Cluster, "a", "2"), gone(resource.Cluster, "b"), put(resource.Cluster, "c", "1")})
	tab.Commit(6, []Update{put(resource.Cluster, "a", "3"), put(resource.Cluster, "b", "1")})
	touched := func(rev model.Revision) (out []Touch) {
		for touch := range tab.State().Touched(resource.Cluster, rev) {
			out = append(out, touch)
		}
		return out
	}
	require.Equal(t, model.Revision(3), tab.State().Opened())
	require.Equal(t, []Touch{{Name: "a", Superseded: true}, {Name: "c"}, {Name: "b", Removed: true, Superseded: true}}, touched(5))
	require.Equal(t, []Touch{{Name: "a"}, {Name: "b"}}, touched(6))
	require.Empty(t, touched(4))
	require.Empty(t, touched(7))
}

func TestMadeOnDemand(t *testing.T) {
	tab := New("t")
	cluster := func(name, version string) Update {
		return Update{Type: resource.Cluster, Name: name, Resource: &resource.Encoded{Name: name, Version: version}}
	}
	tab.Commit(1, []Update{cluster("stays", "1"), cluster("turns", "1"), cluster("returns", "1"), cluster("goes", "1"), cluster("always", "1o")})
	tab.Commit(2, []Update{gone(resource.Cluster, "returns"), cluster("stays", "2"), cluster("always", "2o"), cluster("new", "1o")})
	require.Zero(t, tab.State().LastMadeOnDemand())
	tab.Commit(3, []Update{cluster("turns", "2o"), cluster("returns", "2o"), cluster("goes", "2o")})
	tab.Commit(4, []Update{cluster("turns", "3o"), gone(resource.Cluster, "returns"), gone(resource.Cluster, "goes"), gone(resource.Cluster, "always")})
	tab.Commit(5, []Update{cluster("returns", "3o"), cluster("always", "3o")})
	s := tab.State()
	require.EqualValues(t, 5, s.LastMadeOnDemand())
	require.Equal(t, []string{"turns", "returns", "goes"}, s.MadeOnDemand(1, 1))
	require.Equal(t, []string{"turns", "goes"}, s.MadeOnDemand(2, 2), "the removal of one was before it became on demand")
	require.Equal(t, []string{"returns"}, s.MadeOnDemand(4, 1))
	require.Empty(t, s.MadeOnDemand(5, 1))
}
