package agent

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
)

// Liveness of the control plane's connection: a peer that vanished without a FIN is
// noticed within pingInterval + pingTimeout.
const (
	pingInterval = 10 * time.Second
	pingTimeout  = 5 * time.Second
)

const httpOptionsName = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// unlimited keeps circuit breakers out of the control plane's way, as Istio does.
const unlimited = 100000

func (s *settings) staticClusters() []*clusterv3.Cluster {
	clusters := []*clusterv3.Cluster{s.statsCluster(), s.xdsCluster()}
	if s.identified || s.modules {
		clusters = append(clusters, s.sdsCluster())
	}
	return clusters
}

// statsCluster is the agent, for the Prometheus listener: it names what Envoy counts.
func (s *settings) statsCluster() *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 statsCluster,
		AltStatName:          statsCluster + ";",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(250 * time.Millisecond),
		LoadAssignment:       assignment(statsCluster, socketAddress(s.statusHost(), s.ports.Status)),
	}
}

// xdsCluster is the control plane.
func (s *settings) xdsCluster() *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:                 xdsCluster,
		AltStatName:          xdsCluster + ";",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(time.Second),
		LoadAssignment:       assignment(xdsCluster, s.xdsAddress()),
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{
			breaker(corev3.RoutingPriority_DEFAULT), breaker(corev3.RoutingPriority_HIGH),
		}},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptionsName: pack(xdsHTTPOptions())},
	}
	if s.xdsHost != "" {
		c.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{
			TcpKeepalive: &corev3.TcpKeepalive{KeepaliveTime: u32(300)},
		}
		if !isIP(s.xdsHost) {
			c.ClusterDiscoveryType = byName()
		}
	}
	if !s.XDS.Plaintext {
		c.TransportSocket = s.xdsTLS()
	}
	return c
}

// byName resolves each name to all its addresses (what was type STRICT_DNS); a name
// that does not resolve yet is tried again soon.
func byName() *clusterv3.Cluster_ClusterType {
	return &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.cluster.dns",
		TypedConfig: pack(&dnsv3.DnsCluster{
			DnsRefreshRate:  durationpb.New(5 * time.Second),
			RespectDnsTtl:   true,
			DnsLookupFamily: commondnsv3.DnsLookupFamily_V4_PREFERRED,
			DnsFailureRefreshRate: &dnsv3.DnsCluster_RefreshRate{
				BaseInterval: durationpb.New(500 * time.Millisecond),
				MaxInterval:  durationpb.New(5 * time.Second),
			},
		}),
	}}
}

func (s *settings) xdsAddress() *corev3.Address {
	if path := socketPath(s.XDS.Address); path != "" {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	}
	return socketAddress(s.xdsHost, s.xdsPort)
}

// xdsHTTPOptions: HTTP/2, kept alive, a connection a stream, so that a stream that is
// opened again may find another control plane.
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
