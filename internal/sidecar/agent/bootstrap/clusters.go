package bootstrap

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	commondnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/model"
)

// Envoy closes the connection to a control plane that vanished without a FIN after pingInterval + pingTimeout.
const (
	pingInterval = 10 * time.Second
	pingTimeout  = 5 * time.Second
)

const httpOptionsName = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// unlimited is a limit of circuit breakers that the connection to the control plane does not reach. Istio uses it too.
const unlimited = 100000

func (o *Options) staticClusters() []*clusterv3.Cluster {
	clusters := []*clusterv3.Cluster{o.statsCluster(), o.xdsCluster()}
	if o.SDSSocket != "" {
		clusters = append(clusters, o.sdsCluster())
	}
	return clusters
}

// statsCluster is the agent's status port. The Prometheus listener forwards to it, because the agent converts the names
// of Envoy's metrics.
func (o *Options) statsCluster() *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 statsCluster,
		AltStatName:          statsCluster + ";",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(250 * time.Millisecond),
		LoadAssignment:       assignment(statsCluster, socketAddress(o.StatusHost, o.StatusPort)),
	}
}

// xdsCluster is the control plane.
func (o *Options) xdsCluster() *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:                 xdsCluster,
		AltStatName:          xdsCluster + ";",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(time.Second),
		LoadAssignment:       assignment(xdsCluster, o.xdsAddress()),
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{
			breaker(corev3.RoutingPriority_DEFAULT), breaker(corev3.RoutingPriority_HIGH),
		}},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptionsName: pack(xdsHTTPOptions())},
	}
	if o.XDS.Host != "" {
		c.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{
			TcpKeepalive: &corev3.TcpKeepalive{KeepaliveTime: u32(300)},
		}
		if !isIP(o.XDS.Host) {
			c.ClusterDiscoveryType = o.byName()
		}
	}
	if o.XDS.TLS {
		c.TransportSocket = o.xdsTLS()
	}
	return c
}

// byName resolves a name to all of its addresses of one family, as clusters of type STRICT_DNS do: those of IPv6 first for
// a workload without an IPv4 address. Envoy retries a name that does not resolve after 0.5 to 5 s.
func (o *Options) byName() *clusterv3.Cluster_ClusterType {
	family := commondnsv3.DnsLookupFamily_V4_PREFERRED
	if (&model.Proxy{IPs: o.IPs}).Families() == model.IPv6 {
		family = commondnsv3.DnsLookupFamily_AUTO // IPv6, or else IPv4
	}
	return &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.cluster.dns",
		TypedConfig: pack(&dnsv3.DnsCluster{
			DnsRefreshRate:  durationpb.New(5 * time.Second),
			RespectDnsTtl:   true,
			DnsLookupFamily: family,
			DnsFailureRefreshRate: &dnsv3.DnsCluster_RefreshRate{
				BaseInterval: durationpb.New(500 * time.Millisecond),
				MaxInterval:  durationpb.New(5 * time.Second),
			},
		}),
	}}
}

func (o *Options) xdsAddress() *corev3.Address {
	if o.XDS.Socket != "" {
		return pipe(o.XDS.Socket)
	}
	return socketAddress(o.XDS.Host, o.XDS.Port)
}

// xdsHTTPOptions uses HTTP/2 with keepalive. Each stream has a connection of its own, so that a stream that Envoy opens
// again may reach another control plane.
func xdsHTTPOptions() *httpv3.HttpProtocolOptions {
	return &httpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{MaxRequestsPerConnection: u32(1)},
		UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &corev3.Http2ProtocolOptions{ConnectionKeepalive: &corev3.KeepaliveSettings{
						Interval: durationpb.New(pingInterval),
						Timeout:  durationpb.New(pingTimeout),
					}},
				},
			},
		},
	}
}

func breaker(p corev3.RoutingPriority) *clusterv3.CircuitBreakers_Thresholds {
	return &clusterv3.CircuitBreakers_Thresholds{
		Priority:           p,
		MaxConnections:     u32(unlimited),
		MaxPendingRequests: u32(unlimited),
		MaxRequests:        u32(unlimited),
	}
}

func assignment(name string, address *corev3.Address) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: name,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
		}}}},
	}
}

func pipe(path string) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
}

// sdsCluster is the agent's socket, which serves certificates and Wasm modules.
func (o *Options) sdsCluster() *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 sdsCluster,
		AltStatName:          sdsCluster + ";",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(time.Second),
		LoadAssignment:       assignment(sdsCluster, pipe(o.SDSSocket)),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptionsName: pack(&httpv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
				ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
					ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
						Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
					},
				},
			},
		})},
	}
}
