package envoyfilter

import (
	"errors"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// This file checks what Envoy refuses beyond the validation rules of its API.

// terminal are the filters that must be last in a chain.
var terminal = map[string]bool{
	connectionManager:                       true,
	"envoy.filters.network.tcp_proxy":       true,
	"envoy.filters.network.echo":            true,
	"envoy.filters.network.direct_response": true,
	"envoy.filters.network.redis_proxy":     true,
	"envoy.filters.network.thrift_proxy":    true,
	"envoy.filters.network.dubbo_proxy":     true,
	"envoy.filters.network.generic_proxy":   true,
}

const router = "envoy.filters.http.router"

func checkListener(l *listenerv3.Listener) error {
	if len(l.FilterChains) == 0 && l.DefaultFilterChain == nil {
		return errors.New("the listener has no filter chain left")
	}
	for _, c := range l.FilterChains {
		if err := checkChain(c); err != nil {
			return err
		}
	}
	if l.DefaultFilterChain != nil {
		return checkChain(l.DefaultFilterChain)
	}
	return nil
}

func checkChain(c *listenerv3.FilterChain) error {
	for i, f := range c.Filters {
		if terminal[f.Name] && i < len(c.Filters)-1 {
			return fmt.Errorf("filter %s comes after %s, which must be last", c.Filters[i+1].Name, f.Name)
		}
		m := &hcmv3.HttpConnectionManager{}
		if f.GetTypedConfig().MessageIs(m) && f.GetTypedConfig().UnmarshalTo(m) == nil {
			if err := checkHTTPFilters(m.HttpFilters); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkHTTPFilters(list []*hcmv3.HttpFilter) error {
	for i, f := range list {
		if f.Name == router && i < len(list)-1 {
			return fmt.Errorf("filter %s comes after %s, which must be last: use INSERT_BEFORE", list[i+1].Name, router)
		}
		if f.ConfigType == nil {
			return fmt.Errorf("filter %s has no typed_config", f.Name)
		}
	}
	if len(list) == 0 {
		return errors.New("no HTTP filter is left")
	}
	return nil
}

func checkCluster(c *clusterv3.Cluster) error {
	if c.TransportSocket != nil && len(c.TransportSocketMatches) > 0 {
		return errors.New("the cluster has both transport_socket and transport_socket_matches")
	}
	return nil
}

func checkVirtualHost(v *routev3.VirtualHost) error {
	for _, r := range v.Routes {
		if r.Action == nil {
			return fmt.Errorf("route %q has no action", r.Name)
		}
	}
	return nil
}
