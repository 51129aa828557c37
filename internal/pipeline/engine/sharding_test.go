package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/table"
	"github.com/moonsail/moonsail/test/await"
)

// splitWorld is an engine that is driven by hand, with some services of one port.
func splitWorld(services int) *Engine {
	e := New(Options{Sharding: derive.Sharding{From: 3, Bits: 2}, Recorder: noRecorder{}, Workers: 1})
	e.publisher = noRecorder{}
	e.batch(splitServices(0, services))
	e.loaded.Store(true)
	return e
}

func splitServices(from, to int) (out []store.Event) {
	for i := from; i < to; i++ {
		out = append(out, service(fmt.Sprintf("svc-%d", i), 80))
	}
	return out
}

// bound is a proxy's hold on its tables; *now are those that it was told last.
func bound(e *Engine, p *model.Proxy) (b *binding, now *[]*table.Table) {
	p.ScopedRoutes = true
	return boundWhole(e, p)
}

// boundWhole is bound of one for which nothing is split, unless it says otherwise.
func boundWhole(e *Engine, p *model.Proxy) (b *binding, now *[]*table.Table) {
	now = new([]*table.Table)
	b = &binding{proxy: p, rebind: func(t []*table.Table) { *now = t }}
	reply := make(chan []*table.Table, 1)
	e.bind(b, reply)
	*now = <-reply
	return b, now
}

func requireBuckets(t *testing.T, tables *[]*table.Table, want int) {
	t.Helper()
	s := (*tables)[0].State()
	require.Equal(t, want*routeshard.Count(2), s.Len(resource.Scope), (*tables)[0].Name())
	require.NotNil(t, s.Get(resource.RouteConfigShell, "80"), "the whole one is there always")
}

// TestBucketsStayWithTheirProxies: whatever takes them away for others, a proxy that has route
// configurations in buckets goes on to have them, and one that has none need not.
func TestBucketsStayWithTheirProxies(t *testing.T) {
	e := splitWorld(4)
	_, first := bound(e, proxy("web", "shop"))
	requireBuckets(t, first, 1)

	var gone []store.Event
	for _, s := range splitServices(1, 4) {
		gone = append(gone, store.Event{Key: s.Key})
	}
	e.batch(gone)
	requireBuckets(t, first, 1)
	second, other := bound(e, proxy("cron", "shop"))
	requireBuckets(t, other, 0)

	sidecar := &model.Sidecar{Meta: model.Meta{Key: model.Key{Kind: model.KindSidecar, Namespace: "shop", Name: "default"}}}
	e.batch([]store.Event{{Key: sidecar.Key, Object: sidecar}})
	requireBuckets(t, first, 1)
	requireBuckets(t, other, 0)
	require.NotEqual(t, (*first)[0].Name(), (*other)[0].Name())
	e.batch([]store.Event{{Key: sidecar.Key}})
	requireBuckets(t, first, 1)
	requireBuckets(t, other, 0)

	require.NoError(t, e.keep(second, derive.ShardedRoutesOf("80")))
	requireBuckets(t, other, 1)
	require.Same(t, (*first)[0], (*other)[0], "both have the same")
	e.batch(splitServices(1, 4))
	_, third := bound(e, proxy("job", "shop"))
	requireBuckets(t, third, 1)
}

// TestBucketsStayWhereNothingIsSplit: a proxy for which nothing is split keeps what it has in buckets, and
// the listener that asks for them, also where that is all. Others have none of it.
func TestBucketsStayWhereNothingIsSplit(t *testing.T) {
	e := splitWorld(4)
	b, now := boundWhole(e, proxy("web", "shop"))
	_, other := bound(e, proxy("cron", "shop"))
	asks := func(tables *[]*table.Table) bool {
		return (*tables)[0].State().Get(resource.Listener, routeshard.Listener) != nil
	}
	require.True(t, asks(other))
	require.False(t, asks(now))
	requireBuckets(t, now, 0)
	require.NoError(t, e.keep(b, routeshard.Listener))
	require.True(t, asks(now))
	requireBuckets(t, now, 0)
	require.NoError(t, e.keep(b, "80"))
	require.True(t, asks(now))
	requireBuckets(t, now, 1)
	l := (*now)[0].State().Get(resource.Listener, "0.0.0.0_80")
	require.Equal(t, []string{"80"}, l.Resource().RouteConfigs, "listeners look for the whole")
	require.False(t, resource.UsesScopes([]byte(l.Version)))
	l = (*other)[0].State().Get(resource.Listener, "0.0.0.0_80")
	require.Empty(t, l.Resource().RouteConfigs)
	require.True(t, resource.UsesScopes([]byte(l.Version)), "its version tells it")
	_, fresh := boundWhole(e, proxy("job", "shop"))
	require.False(t, asks(fresh))
}

// TestFewGenerations: however often proxies come between changes of the listeners' form, there are two
// tables of a scope at most, whatever the proxies have when they connect again.
func TestFewGenerations(t *testing.T) {
	e := splitWorld(4)
	filter := &model.WasmPlugin{Meta: model.Meta{Key: model.Key{Kind: model.KindWasmPlugin, Namespace: "shop", Name: "users"}}, File: "/plugin.wasm"}
	requireFew := func() {
		t.Helper()
		outbound := map[derive.ShardedRoutes]int{}
		for k := range e.groups {
			if !k.Inbound {
				outbound[k.Sharded]++
			}
		}
		for split, n := range outbound {
			require.LessOrEqual(t, n, 2, "told %q", split)
		}
	}
	var all []*binding
	for i := range 5 {
		b, now := bound(e, proxy(fmt.Sprint("web", i), "shop"))
		requireBuckets(t, now, 1)
		e.batch([]store.Event{{Key: filter.Key, Object: filter}})
		requireBuckets(t, now, 1)
		late, other := bound(e, proxy(fmt.Sprint("job", i), "shop"))
		if i == 0 {
			requireBuckets(t, other, 0)
		}
		e.batch([]store.Event{{Key: filter.Key}})
		requireBuckets(t, other, 1)
		all = append(all, b, late)
		requireFew()
	}
	e.batch([]store.Event{{Key: filter.Key, Object: filter}})
	for _, b := range all {
		e.release(b)
		again, now := bound(e, b.proxy)
		require.NoError(t, e.keep(again, "80"))
		requireBuckets(t, now, 1)
	}
	requireFew()
}

// TestBucketsStayOverNothing: a proxy that is moved has what it had in buckets so, though the scope
// where it was has lost it in the same batch, or before.
func TestBucketsStayOverNothing(t *testing.T) {
	selects := func(name string, hosts ...string) store.Event {
		s := &model.Sidecar{Meta: model.Meta{Key: model.Key{Kind: model.KindSidecar, Namespace: "shop", Name: name}}, Egress: []model.EgressListener{{}}}
		for _, h := range hosts {
			s.Egress[0].Hosts = append(s.Egress[0].Hosts, model.HostSelector{Namespace: "shop", Host: model.Host(h)})
		}
		if name != "default" {
			s.Selector = map[string]string{"app": "web"}
		}
		return store.Event{Key: s.Key, Object: s}
	}
	for _, batches := range []int{1, 2} {
		e := splitWorld(4)
		e.batch([]store.Event{selects("default", "*")})
		p := proxy("web", "shop")
		p.Labels = map[string]string{"app": "web"}
		_, now := bound(e, p)
		requireBuckets(t, now, 1)
		nothing, few := selects("default"), selects("few", "svc-1.shop.svc.cluster.local")
		if batches == 1 {
			e.batch([]store.Event{nothing, few})
		} else {
			e.batch([]store.Event{nothing})
			require.Zero(t, (*now)[0].State().Len(resource.Scope))
			e.batch([]store.Event{few})
		}
		requireBuckets(t, now, 1)
	}
}

// TestKeepWaitsForTheTables: they are others when it returns.
func TestKeepWaitsForTheTables(t *testing.T) {
	e, in, _ := start(t)
	in.Put(service("a", 80))
	in.Synced("test")
	p, moved := proxy("web", "shop"), make(chan []*table.Table, 1)
	p.ScopedRoutes = true
	_, release, err := e.Bind(context.Background(), p, func(tables []*table.Table) { moved <- tables })
	require.NoError(t, err)
	defer release()
	require.NoError(t, e.Keep(context.Background(), p, []string{"80"}))
	require.Equal(t, routeshard.Count(routeshard.Bits), await.From(t, moved)[0].State().Len(resource.Scope))
	require.NoError(t, e.Keep(context.Background(), p, []string{"80"}))
	require.Empty(t, moved, "nothing is to be done")
	require.True(t, slices.ContainsFunc(e.ProxyGroups(context.Background()), func(s GroupInfo) bool { return s.Key.Sharded == derive.ShardedRoutesOf("80").Asking() }))
}
