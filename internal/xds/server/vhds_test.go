package server

import (
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

func withRoutes(h *harness) *client {
	c := h.warm("envoy")
	h.commit(append(routeConfig("80"), virtualHost("80/a", "c1"), virtualHost("80/b", "c1"))...)
	c.subscribe(resource.RouteConfig, "80")
	return c
}

func TestVirtualHostsFollowTheirRouteConfiguration(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := withRoutes(h)
		shell := c.expect(resource.RouteConfig, "80")
		var rc routev3.RouteConfiguration
		require.NoError(t, shell.Resources[0].Resource.UnmarshalTo(&rc))
		require.NotNil(t, rc.Vhds)
		require.Empty(t, rc.VirtualHosts)
		c.subscribe(resource.VirtualHost)
		c.quiet() // Envoy drops virtual hosts that precede their route configuration
		c.ack(shell)
		c.take(resource.VirtualHost, "80/a", "80/b")

		h.commit(virtualHost("80/a", "c2"), virtualHost("8080/a", "c1"))
		c.take(resource.VirtualHost, "80/a")
		h.commit(remove(resource.VirtualHost, "80/b"))
		c.take(resource.VirtualHost, "-80/b")
	})
}

func TestEmptyRouteConfigurationIsAnswered(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("envoy")
		h.commit(routeConfig("80")...)
		c.subscribe(resource.RouteConfig, "80")
		c.take(resource.RouteConfig, "80")
		c.subscribe(resource.VirtualHost)
		c.take(resource.VirtualHost, "-80/none")
		h.commit(virtualHost("80/a", "c1"))
		c.take(resource.VirtualHost, "80/a")
	})
}

func TestResubscribedRouteConfigurationGetsAllVirtualHosts(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := withRoutes(h)
		c.take(resource.RouteConfig, "80")
		c.subscribe(resource.VirtualHost)
		c.take(resource.VirtualHost, "80/a", "80/b")
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.RouteConfigURL, ResourceNamesUnsubscribe: []string{"80"}})
		c.quiet()
		h.commit(virtualHost("80/a", "c2")) // the proxy does not have its route configuration
		c.quiet()
		c.subscribe(resource.RouteConfig, "80")
		c.take(resource.RouteConfig, "80")
		c.take(resource.VirtualHost, "80/a", "80/b")
	})
}

func TestReconnectWithVirtualHosts(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := withRoutes(h)
		c.take(resource.RouteConfig, "80")
		c.subscribe(resource.VirtualHost)
		c.take(resource.VirtualHost, "80/a", "80/b")
		c.cancel()
		h.commit(virtualHost("80/b", "c2"), virtualHost("80/c", "c1"))

		c = h.connect("envoy")
		c.resume(resource.Cluster, has(h, resource.Cluster, "c1"))
		c.resume(resource.Endpoints, has(h, resource.Endpoints, "c1"), "c1")
		c.resume(resource.Listener, has(h, resource.Listener, "l1"))
		c.resume(resource.RouteConfig, map[string]string{"80": h.out.State().Get(resource.VHDSRouteConfig, "80").Version}, "80")
		c.resume(resource.VirtualHost, map[string]string{
			"80/a": h.out.State().Get(resource.VirtualHost, "80/a").Version, "80/b": "old", "80/gone": "old"})
		c.take(resource.VirtualHost, "80/b", "80/c", "-80/gone")
		c.quiet()
	})
}

func TestRefusedVirtualHostIsFoundAmongMany(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := withRoutes(h)
		c.take(resource.RouteConfig, "80")
		h.commit(virtualHost("80/c", "c1"), virtualHost("80/d", "c1"))
		c.subscribe(resource.VirtualHost)
		c.nack(c.expect(resource.VirtualHost, "80/a", "80/b", "80/c", "80/d"), "duplicate domain")
		c.take(resource.VirtualHost, "80/a", "80/b")
		c.nack(c.expect(resource.VirtualHost, "80/c", "80/d"), "duplicate domain")
		c.nack(c.expect(resource.VirtualHost, "80/c"), "duplicate domain")
		c.take(resource.VirtualHost, "80/d")
		p, _ := h.server.Proxy(nodeID)
		require.Equal(t, RoutesVHDS, p.Strategy)
		require.Len(t, p.Types[4].Held, 1)
		require.Equal(t, "80/c", p.Types[4].Held[0].Name)
	})
}

func TestRouteStrategies(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		for _, tc := range []struct {
			option RouteStrategy
			id     string
			agent  string
			want   RouteStrategy
		}{
			{RoutesAuto, nodeID, "envoy", RoutesVHDS},
			{RoutesAuto, nodeID, "gRPC Go", RoutesRDS},
			{RoutesAuto, "router~10.0.0.1~gw-1.shop~shop.svc.cluster.local", "envoy", RoutesRDS},
			{RoutesRDS, nodeID, "envoy", RoutesRDS},
			{RoutesScoped, nodeID, "envoy", RoutesVHDS},
			{RoutesScoped, nodeID, "gRPC Go", RoutesRDS},
			{RoutesScoped, "router~10.0.0.1~gw-1.shop~shop.svc.cluster.local", "envoy", RoutesRDS},
			{RoutesVHDS, "router~10.0.0.1~gw-1.shop~shop.svc.cluster.local", "", RoutesVHDS},
		} {
			h := newHarness(t, on, Options{RouteStrategy: tc.option})
			h.commit(append(routeConfig("80"), virtualHost("80/a", "c1"))...)
			c := h.connectAs(tc.id, tc.agent)
			c.subscribe(resource.RouteConfig, "80")
			r := c.take(resource.RouteConfig, "80")
			var rc routev3.RouteConfiguration
			require.NoError(t, r.Resources[0].Resource.UnmarshalTo(&rc))
			require.Equal(t, tc.want == RoutesVHDS, rc.Vhds != nil)
			require.Equal(t, tc.want == RoutesRDS, len(rc.VirtualHosts) == 1)
		}
	})
}
