package server

import (
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// TestShardsAreKept: if a proxy that connects again has route shards, they and the listener that
// requests them are kept, unless the tables have them or the route configuration is gone. This
// holds even if no others are sharded.
func TestShardsAreKept(t *testing.T) {
	for _, strategy := range []RouteStrategy{RoutesScoped, RoutesAuto, RoutesVHDS} {
		t.Run(string(strategy), func(t *testing.T) {
			overEach(t, func(t *testing.T, on Transport) { shardsAreKept(t, on, strategy) })
		})
	}
}

func shardsAreKept(t *testing.T, on Transport, strategy RouteStrategy) {
	h := newHarness(t, on, Options{RouteStrategy: strategy})
	h.commit(append(append(routeConfig("80"), routeConfig("81")...), encode(resource.Scope, "81~2~0", &routev3.ScopedRouteConfiguration{Name: "81~2~0"}))...)
	kept := func() []string { h.mu.Lock(); defer h.mu.Unlock(); return h.kept }
	c := h.connectAs(nodeID, "envoy")
	c.resume(resource.Cluster, map[string]string{"c": "1"})
	c.resume(resource.Listener, map[string]string{"0.0.0.0_80": "1", routeshard.Listener: "1"})
	h.eventually("the listener is kept", func() bool { return len(kept()) > 0 })
	c.resume(resource.Scope, map[string]string{"80~2~0": "1", "80~2~1": "1", "81~2~0": "1", "82~2~0": "1"})
	h.eventually("the route configuration is kept", func() bool { return len(kept()) > 1 })
	c.resume(resource.RouteConfig, map[string]string{"80": "1", "81~2~1": "1"}, "80", "81~2~1")
	h.eventually("so is the other", func() bool { return len(kept()) > 2 })
	require.Equal(t, []string{routeshard.Listener, "80", "81"}, kept())
}

// TestListenerOfScopesIsNotKept: it is in the tables anyway, or the proxy has never had it.
func TestListenerOfScopesIsNotKept(t *testing.T) {
	h := newHarness(t, TransportHTTP2, Options{})
	first := h.connectAs(nodeID, "envoy")
	first.resume(resource.Listener, map[string]string{"0.0.0.0_80": "1"})
	h.commit(append(routeConfig("80"), listener(routeshard.Listener, ""))...)
	c := h.connectAs(nodeID, "envoy")
	c.resume(resource.Listener, map[string]string{routeshard.Listener: "1"})
	c.resume(resource.Scope, map[string]string{"80~2~0": "1"})
	h.eventually("its route configuration is kept", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.kept) > 0 })
	require.Equal(t, []string{"80"}, h.kept)
}
