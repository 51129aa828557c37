package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/table"
	"github.com/moonsail/moonsail/test/await"
)

// shardingEngine is an engine without a goroutine, with some services of one port.
func shardingEngine(services int) *Engine {
	e := New(Options{Sharding: derive.Sharding{From: 3, Bits: 2}, Recorder: noRecorder{}, Workers: 1})
	e.publisher = noRecorder{}
	e.batch(servicesFrom(0, services))
	close(e.loaded)
	return e
}

func servicesFrom(from, to int) (out []store.Event) {
	for i := from; i < to; i++ {
		out = append(out, service(fmt.Sprintf("svc-%d", i), 80))
	}
	return out
}

// bound binds a proxy that uses scopes; *now are its tables, also after it is rebound.
func bound(e *Engine, p *model.Proxy) (b *binding, now *[]*table.Table) {
	p.ScopedRoutes = true
	return boundWhole(e, p)
}

// boundWhole binds a proxy as it is.
func boundWhole(e *Engine, p *model.Proxy) (b *binding, now *[]*table.Table) {
	now = new([]*table.Table)
	b = &binding{proxy: p, rebind: func(t []*table.Table) { *now = t }}
	reply := make(chan []*table.Table, 1)
	e.bind(b, reply)
	*now = <-reply
	return b, now
}

func requireShards(t *testing.T, tables *[]*table.Table, want int) {
	t.Helper()
	s := (*tables)[0].State()
	require.Equal(t, want*routeshard.Count(2), s.Len(resource.Scope), (*tables)[0].Name())
	require.NotNil(t, s.Get(resource.VHDSRouteConfig, "80"), "the whole route configuration is always served")
}

// TestShardsStayWithTheirProxies checks that a proxy keeps route configurations in shards although other
// proxies no longer get them, and that a proxy without shards gets none for that reason.
func TestShardsStayWithTheirProxies(t *testing.T) {
	e := shardingEngine(4)
	_, first := bound(e, proxy("web", "shop"))
	requireShards(t, first, 1)

	var gone []store.Event
	for _, s := range servicesFrom(1, 4) {
		gone = append(gone, store.Event{Key: s.Key})
	}
	e.batch(gone)
	requireShards(t, first, 1)
	second, other := bound(e, proxy("cron", "shop"))
	requireShards(t, other, 0)

	sidecar := &model.Sidecar{Meta: model.Meta{Key: model.Key{Kind: model.KindSidecar, Namespace: "shop", Name: "default"}}}
	e.batch([]store.Event{{Key: sidecar.Key, Object: sidecar}})
	requireShards(t, first, 1)
	requireShards(t, other, 0)
	require.NotEqual(t, (*first)[0].Name(), (*other)[0].Name())
	e.batch([]store.Event{{Key: sidecar.Key}})
	requireShards(t, first, 1)
	requireShards(t, other, 0)

	require.NoError(t, e.keep(second, index.ShardedRoutesOf("80")))
	requireShards(t, other, 1)
	require.Same(t, (*first)[0], (*other)[0], "both have the same table")
	e.batch(servicesFrom(1, 4))
	_, third := bound(e, proxy("job", "shop"))
	requireShards(t, third, 1)
}

// TestShardsStayWithoutScopedRoutes checks a proxy for which nothing is sharded. It keeps the shards that
// it has, and the listener that asks for them, even if it has nothing else. Other proxies have none.
func TestShardsStayWithoutScopedRoutes(t *testing.T) {
	e := shardingEngine(4)
	b, now := boundWhole(e, proxy("web", "shop"))
	_, other := bound(e, proxy("cron", "shop"))
	asks := func(tables *[]*table.Table) bool {
		return (*tables)[0].State().Get(resource.Listener, routeshard.Listener) != nil
	}
	require.True(t, asks(other))
	require.False(t, asks(now))
	requireShards(t, now, 0)
	require.NoError(t, e.keep(b, routeshard.Listener))
	require.True(t, asks(now))
	requireShards(t, now, 0)
	require.NoError(t, e.keep(b, "80"))
	require.True(t, asks(now))
	requireShards(t, now, 1)
	l := (*now)[0].State().Get(resource.Listener, "0.0.0.0_80")
	require.Equal(t, []string{"80"}, l.Resource().RouteConfigs, "listeners ask for the whole route configuration")
	require.False(t, resource.UsesScopes([]byte(l.Version)))
	l = (*other)[0].State().Get(resource.Listener, "0.0.0.0_80")
	require.Empty(t, l.Resource().RouteConfigs)
	require.True(t, resource.UsesScopes([]byte(l.Version)), "its version shows it")
	_, fresh := boundWhole(e, proxy("job", "shop"))
	require.False(t, asks(fresh))
}

// TestTwoCohortsAtMost checks that a proxy group has at most two tables, however often proxies connect
// between changes of the listeners, and whatever they have when they reconnect.
func TestTwoCohortsAtMost(t *testing.T) {
	e := shardingEngine(4)
	filter := &model.WasmPlugin{Meta: model.Meta{Key: model.Key{Kind: model.KindWasmPlugin, Namespace: "shop", Name: "users"}}, File: "/plugin.wasm"}
	requireFew := func() {
		t.Helper()
		outbound := map[derive.ShardedRoutes]int{}
		for k := range e.groups.open {
			if !k.Inbound {
				outbound[k.Sharded]++
			}
		}
		for split, n := range outbound {
			require.LessOrEqual(t, n, 2, "sharded %q", split)
		}
	}
	var all []*binding
	for i := range 5 {
		b, now := bound(e, proxy(fmt.Sprint("web", i), "shop"))
		requireShards(t, now, 1)
		e.batch([]store.Event{{Key: filter.Key, Object: filter}})
		requireShards(t, now, 1)
		late, other := bound(e, proxy(fmt.Sprint("job", i), "shop"))
		if i == 0 {
			requireShards(t, other, 0)
		}
		e.batch([]store.Event{{Key: filter.Key}})
		requireShards(t, other, 1)
		all = append(all, b, late)
		requireFew()
	}
	e.batch([]store.Event{{Key: filter.Key, Object: filter}})
	for _, b := range all {
		e.bindings.release(b)
		again, now := bound(e, b.proxy)
		require.NoError(t, e.keep(again, "80"))
		requireShards(t, now, 1)
	}
	requireFew()
}

// TestMovedProxyKeepsItsShards checks that a proxy that moves keeps its shards, although its old proxy
// group lost them in the same batch or before.
func TestMovedProxyKeepsItsShards(t *testing.T) {
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
		e := shardingEngine(4)
		e.batch([]store.Event{selects("default", "*")})
		p := proxy("web", "shop")
		p.Labels = map[string]string{"app": "web"}
		_, now := bound(e, p)
		requireShards(t, now, 1)
		nothing, few := selects("default"), selects("few", "svc-1.shop.svc.cluster.local")
		if batches == 1 {
			e.batch([]store.Event{nothing, few})
		} else {
			e.batch([]store.Event{nothing})
			require.Zero(t, (*now)[0].State().Len(resource.Scope))
			e.batch([]store.Event{few})
		}
		requireShards(t, now, 1)
	}
}

// TestAddShardsWaitsForTheTables checks that AddShards returns after the proxy was rebound.
func TestAddShardsWaitsForTheTables(t *testing.T) {
	e, in, _ := start(t)
	in.Put(service("a", 80))
	in.Synced("test")
	p, moved := proxy("web", "shop"), make(chan []*table.Table, 1)
	p.ScopedRoutes = true
	_, release, err := e.Bind(context.Background(), p, func(tables []*table.Table) { moved <- tables })
	require.NoError(t, err)
	defer release()
	require.NoError(t, e.AddShards(context.Background(), p, []string{"80"}))
	require.Equal(t, routeshard.Count(routeshard.Bits), await.From(t, moved)[0].State().Len(resource.Scope))
	require.NoError(t, e.AddShards(context.Background(), p, []string{"80"}))
	require.Empty(t, moved, "nothing to do")
	require.True(t, slices.ContainsFunc(e.ProxyGroups(context.Background()), func(s GroupInfo) bool { return s.Key.Sharded == index.ShardedRoutesOf("80").Asking() }))
}
