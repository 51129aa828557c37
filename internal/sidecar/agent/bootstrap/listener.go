package bootstrap

import (
	"fmt"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// prometheusListener serves Envoy's metrics, under the names that the agent gives them, and nothing else. It does not use
// SO_REUSEPORT: a second sidecar at the same address must fail instead of answering half of the scrapes.
func (o *Options) prometheusListener() *listenerv3.Listener {
	hcm := &hcmv3.HttpConnectionManager{
		CodecType:  hcmv3.HttpConnectionManager_AUTO,
		StatPrefix: "stats",
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			VirtualHosts: []*routev3.VirtualHost{{
				Name:    "backend",
				Domains: []string{"*"},
				Routes: []*routev3.Route{{
					Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/stats/prometheus"}},
					Action: &routev3.Route_Route{Route: &routev3.RouteAction{
						ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: statsCluster},
						PrefixRewrite:    o.MetricsPath,
					}},
				}},
			}},
		}},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name:       "envoy.filters.http.router",
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})},
		}},
	}
	return &listenerv3.Listener{
		Name:                  fmt.Sprintf("%s_%d", o.Bind, o.PrometheusPort),
		Address:               socketAddress(o.Bind, o.PrometheusPort),
		StatPrefix:            PrometheusStatPrefix,
		IgnoreGlobalConnLimit: true,
		BypassOverloadManager: true,
		EnableReusePort:       wrapperspb.Bool(false),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(hcm)},
		}}}},
	}
}
