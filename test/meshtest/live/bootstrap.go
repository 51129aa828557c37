// Package live runs a proxy's resources on a real Envoy, unprivileged and on loopback, and makes calls through it, to
// compare the simulator's results with Envoy's.
//
// The PROXY protocol stands for interception: a client states its destination, and Envoy passes the connection on as if
// it had been redirected. One echo server for each cluster stands for its upstreams, and reports the requests that
// reach it.
package live

import (
	"fmt"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	proxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
)

// silence is how long listeners for silent clients wait for them. It is short so that they do not delay the tests.
// Listeners for other clients wait as long as for a call, which takes more than a moment on a busy machine.
const silence = 200 * time.Millisecond

// bootstrap returns a static configuration of a world. echo has the ports of upstreams by cluster; clusters without one
// have no endpoints. wait is how long listeners wait for a client's first bytes.
func bootstrap(w *simulate.World, echo map[string]uint32, a *authority, wait time.Duration) (*bootstrapv3.Bootstrap, error) {
	out := &bootstrapv3.Bootstrap{
		Node:            &corev3.Node{Id: "live", Cluster: "live"},
		Admin:           &bootstrapv3.Admin{Address: loopback(0)},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{},
	}
	for _, c := range w.Clusters {
		out.StaticResources.Clusters = append(out.StaticResources.Clusters, playedCluster(c, echo))
	}
	for _, l := range w.Listeners {
		p, err := playedListener(l, a, wait)
		if err == nil {
			err = eachFilter(p, func(f *listenerv3.Filter) error { return inlineRoutes(w, f) })
		}
		if err != nil {
			return nil, fmt.Errorf("listener %s: %w", l.GetName(), err)
		}
		out.StaticResources.Listeners = append(out.StaticResources.Listeners, p)
	}
	return out, nil
}

// deferAccept makes the kernel give Envoy a connection when its first bytes have arrived, which state its destination.
// Envoy then has them at once, however short the wait is.
var deferAccept = &corev3.SocketOption{
	Description: "TCP_DEFER_ACCEPT", Level: 6, Name: 9, State: corev3.SocketOption_STATE_PREBIND,
	Value: &corev3.SocketOption_IntValue{IntValue: int64(patience / time.Second)},
}

func loopback(port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

// playedCluster keeps what affects requests, and sends them to an echo server.
func playedCluster(c *clusterv3.Cluster, echo map[string]uint32) *clusterv3.Cluster {
	out := proto.CloneOf(c)
	out.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
	out.EdsClusterConfig, out.TransportSocket, out.TransportSocketMatches = nil, nil, nil
	out.OutlierDetection, out.UpstreamBindConfig, out.LbConfig, out.CommonLbConfig = nil, nil, nil, nil
	out.DnsLookupFamily = clusterv3.Cluster_AUTO
	out.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
	out.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: c.GetName()}
	if port := echo[c.GetName()]; port != 0 {
		out.LoadAssignment.Endpoints = []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: loopback(port)}},
		}}}}
	}
	if o := out.GetTypedExtensionProtocolOptions()[httpOptions]; o != nil {
		out.TypedExtensionProtocolOptions[httpOptions] = withoutAutoSNI(o)
	}
	return out
}

// playedListener returns a listener without real certificates. Listeners that accept connections do so on loopback, at a port of the kernel's
// choice, from clients that state their destination.
func playedListener(l *listenerv3.Listener, a *authority, wait time.Duration) (*listenerv3.Listener, error) {
	out := proto.CloneOf(l)
	var filters []*listenerv3.ListenerFilter
	if out.GetBindToPort() == nil || out.GetBindToPort().GetValue() {
		out.Address, out.AdditionalAddresses = loopback(0), nil
		if wait == silence {
			out.SocketOptions = append(out.SocketOptions, deferAccept)
		}
		packed, err := anypb.New(&proxyv3.ProxyProtocol{})
		if err != nil {
			return nil, err
		}
		filters = append(filters, &listenerv3.ListenerFilter{
			Name:       "envoy.filters.listener.proxy_protocol",
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: packed},
		})
	}
	for _, f := range out.GetListenerFilters() {
		if f.GetName() != "envoy.filters.listener.original_dst" {
			filters = append(filters, f)
		}
	}
	out.ListenerFilters = filters
	out.ListenerFiltersTimeout = durationpb.New(wait)
	for _, c := range chainsOf(out) {
		if err := a.playTLS(c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func chainsOf(l *listenerv3.Listener) []*listenerv3.FilterChain {
	chains := l.GetFilterChains()
	if d := l.GetDefaultFilterChain(); d != nil {
		chains = append(chains[:len(chains):len(chains)], d)
	}
	return chains
}

func eachFilter(l *listenerv3.Listener, do func(*listenerv3.Filter) error) error {
	for _, c := range chainsOf(l) {
		for _, f := range c.GetFilters() {
			if err := do(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// inlineRoutes inserts the route configurations that RDS and VHDS would serve.
func inlineRoutes(w *simulate.World, f *listenerv3.Filter) error {
	hcm := &hcmv3.HttpConnectionManager{}
	if f.GetTypedConfig().UnmarshalTo(hcm) != nil || hcm.GetRds() == nil {
		return nil
	}
	rc, err := w.RouteConfig(hcm.GetRds().GetRouteConfigName())
	if err != nil {
		return err
	}
	rc = proto.CloneOf(rc)
	rc.ValidateClusters = wrapperspb.Bool(false)
	hcm.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: rc}
	packed, err := anypb.New(hcm)
	f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: packed}
	return err
}
