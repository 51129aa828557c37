package server

import (
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// built returns the node of an Envoy release; 0: it sends none.
func built(major, minor uint32) *corev3.Node {
	n := &corev3.Node{Id: nodeID, UserAgentName: "envoy"}
	if major > 0 {
		n.UserAgentVersionType = &corev3.Node_UserAgentBuildVersion{UserAgentBuildVersion: &corev3.BuildVersion{
			Version: &typev3.SemanticVersion{MajorNumber: major, MinorNumber: minor}}}
	}
	return n
}

// with returns the node of a new Envoy with some extensions.
func with(extensions ...*corev3.Extension) *corev3.Node {
	n := built(1, 40)
	n.Extensions = extensions
	return n
}

func said(version string) *corev3.Node {
	return &corev3.Node{Id: nodeID, UserAgentName: "envoy", UserAgentVersionType: &corev3.Node_UserAgentVersion{UserAgentVersion: version}}
}

// TestWhichProxiesGetShards: Envoy sidecars on delta streams whose release and extensions support
// them.
func TestWhichProxiesGetShards(t *testing.T) {
	cel, early := &corev3.Extension{Name: "envoy.formatter.cel"}, &corev3.Extension{Name: "envoy.http.early_header_mutation.header_mutation"}
	disabled := &corev3.Extension{Name: early.Name, Disabled: true}
	router, other := built(1, 40), built(1, 40)
	router.Id = "router~10.0.0.1~gateway-1.shop~shop.svc.cluster.local"
	other.UserAgentName = "grpc-go"
	for _, c := range []struct {
		name     string
		node     *corev3.Node
		option   RouteStrategy
		protocol ledger.Protocol
		want     *ledger.Strategy
		splits   bool
	}{
		{name: "as built", node: built(1, 40), option: RoutesAuto, want: ledger.ScopedRoutes, splits: true},
		{name: "not tried", node: built(1, 39), option: RoutesAuto, want: ledger.ScopedRoutes},
		{name: "not tried, asked for", node: built(1, 39), option: RoutesScoped, want: ledger.ScopedRoutes, splits: true},
		{name: "of a distant future", node: built(2, 0), option: RoutesAuto, want: ledger.ScopedRoutes, splits: true},
		{name: "older", node: built(1, 33), option: RoutesAuto, want: ledger.ScopedRoutes},
		{name: "older, asked for", node: built(1, 33), option: RoutesScoped, want: ledger.ScopedRoutes},
		{name: "asked for", node: built(1, 34), option: RoutesScoped, want: ledger.ScopedRoutes, splits: true},
		{name: "not known", node: built(0, 0), option: RoutesAuto, want: ledger.ScopedRoutes},
		{name: "as text", node: said("1.40.2-dev"), option: RoutesAuto, want: ledger.ScopedRoutes, splits: true},
		{name: "as text, older", node: said("1.9.1"), option: RoutesAuto, want: ledger.ScopedRoutes},
		{name: "as another text", node: said("nightly"), option: RoutesAuto, want: ledger.ScopedRoutes},
		{name: "with what it takes", node: with(early, &corev3.Extension{Name: "envoy.filters.http.router"}, cel), option: RoutesAuto, want: ledger.ScopedRoutes, splits: true},
		{name: "built without CEL", node: with(early), option: RoutesAuto, want: ledger.ScopedRoutes},
		{name: "built without CEL, asked for", node: with(early), option: RoutesScoped, want: ledger.ScopedRoutes},
		{name: "without headers of before", node: with(cel, disabled), option: RoutesAuto, want: ledger.ScopedRoutes},
		{name: "not asked for", node: built(1, 40), option: RoutesVHDS, want: ledger.ScopedRoutes},
		{name: "whole routes", node: built(1, 40), option: RoutesRDS, want: ledger.WholeRoutes},
		{name: "the state of the world", node: built(1, 40), option: RoutesAuto, protocol: ledger.Sotw, want: ledger.WholeRoutes},
		{name: "a router", node: router, option: RoutesAuto, want: ledger.WholeRoutes},
		{name: "a router with VHDS", node: router, option: RoutesVHDS, want: ledger.VirtualHosts},
		{name: "no Envoy", node: other, option: RoutesAuto, want: ledger.WholeRoutes},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := proto.Marshal(c.node)
			require.NoError(t, err)
			p, agent, err := parseNode(b)
			require.NoError(t, err)
			s := &Server{opts: Options{RouteStrategy: c.option}}
			got, splits := s.strategy(c.protocol, p, agent)
			require.Same(t, c.want, got)
			require.Equal(t, c.splits, splits)
		})
	}
}

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

// TestScopesListenerIsNotKept: the listener is not kept if it is in the tables, or if the proxy has never
// had it.
func TestScopesListenerIsNotKept(t *testing.T) {
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
