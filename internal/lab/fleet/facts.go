package fleet

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/xds/wire"
)

// facts are what a proxy must know about a resource to subscribe to the next ones.
type facts struct {
	endpoints string   // cluster: the name of its endpoints; "": it needs none
	routes    []string // listener, scope: the route configurations that it uses
	scopes    bool     // listener: it uses scopes, and their route configurations
	hosts     bool     // route configuration: its virtual hosts come by VHDS
}

// parseFacts parses a resource. An invalid resource has no facts; other tests check validity.
func parseFacts(k Kind, r *received) (f facts) {
	value := anyValue(r.any)
	switch k {
	case CDS:
		var c clusterv3.Cluster
		if proto.Unmarshal(value, &c) == nil && c.GetType() == clusterv3.Cluster_EDS {
			if f.endpoints = c.GetEdsClusterConfig().GetServiceName(); f.endpoints == "" {
				f.endpoints = c.Name
			}
		}
	case LDS:
		var l listenerv3.Listener
		if proto.Unmarshal(value, &l) == nil {
			f.routes, f.scopes = routesOf(&l)
		}
	case SRDS:
		var sc routev3.ScopedRouteConfiguration
		if proto.Unmarshal(value, &sc) == nil && sc.RouteConfigurationName != "" {
			f.routes = []string{sc.RouteConfigurationName}
		}
	case RDS:
		var rc routev3.RouteConfiguration
		f.hosts = proto.Unmarshal(value, &rc) == nil && rc.Vhds != nil
	}
	return f
}

func routesOf(l *listenerv3.Listener) (names []string, scopes bool) {
	for _, chain := range append(l.FilterChains[:len(l.FilterChains):len(l.FilterChains)], l.DefaultFilterChain) {
		for _, filter := range chain.GetFilters() {
			var h hcmv3.HttpConnectionManager
			if filter.GetTypedConfig().UnmarshalTo(&h) != nil {
				continue
			}
			if name := h.GetRds().GetRouteConfigName(); name != "" {
				names = append(names, name)
			}
			scopes = scopes || h.GetScopedRoutes().GetScopedRds() != nil
		}
	}
	return names, scopes
}

// anyValue returns the message in an encoded google.protobuf.Any.
func anyValue(b []byte) (value []byte) {
	_ = wire.Fields(b, func(num protowire.Number, v []byte) error {
		if num == 2 {
			value = v
		}
		return nil
	}) // an incomplete one has no facts
	return value
}
