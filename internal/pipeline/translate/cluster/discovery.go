package cluster

import (
	"cmp"
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	dnscommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	dfpclusterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dynamic_forward_proxy/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// SetEndpointsName sets the name by which a cluster requests its endpoints.
func SetEndpointsName(c *clusterv3.Cluster, name string) { c.EdsClusterConfig.ServiceName = name }

// dnsRefresh is Istio's interval of resolving a name whose answer has no TTL.
const dnsRefresh = time.Minute

// dnsType replaces the types STRICT_DNS and LOGICAL_DNS (logical: all addresses are one endpoint), which need
// deprecated fields of Cluster.
func dnsType(v *ir.Cluster, logical bool) *clusterv3.Cluster_ClusterType {
	return &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: resource.DNSClusterType,
		TypedConfig: envoyproto.MustPack(&dnsv3.DnsCluster{
			DnsRefreshRate:               durationpb.New(cmp.Or(v.DNSRefresh, dnsRefresh)),
			RespectDnsTtl:                true,
			DnsLookupFamily:              lookupFamily(v.Families, logical),
			AllAddressesInSingleEndpoint: logical,
		}),
	}}
}

// lookupFamily prefers addresses of the family that the proxy has. A proxy with both tries each address of a single
// endpoint in turn (Happy Eyeballs). Endpoints with one address each are all IPv4 if the name has IPv4: calls to
// addresses without a route would fail.
func lookupFamily(f model.Families, single bool) dnscommonv3.DnsLookupFamily {
	switch {
	case f == model.IPv6:
		return dnscommonv3.DnsLookupFamily_AUTO // IPv6, or else IPv4
	case f == model.DualStack && single:
		return dnscommonv3.DnsLookupFamily_ALL
	}
	return dnscommonv3.DnsLookupFamily_V4_PREFERRED
}

// forwardProxy is the type of a dynamic forward proxy. insecure: without TLS, or without verifying the name of the
// server.
func forwardProxy(v *ir.Cluster, insecure bool) *clusterv3.Cluster_ClusterType {
	return &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
		Name: "envoy.clusters.dynamic_forward_proxy",
		TypedConfig: envoyproto.MustPack(&dfpclusterv3.ClusterConfig{
			ClusterImplementationSpecifier: &dfpclusterv3.ClusterConfig_DnsCacheConfig{DnsCacheConfig: envoyproto.DNSCache(v.Families)},
			AllowInsecureClusterOptions:    insecure,
		}),
	}}
}

var originalDst = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_ORIGINAL_DST}

func setDiscovery(v *ir.Cluster, c *clusterv3.Cluster) error {
	switch v.Discovery {
	case ir.DiscoverEDS:
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: envoyproto.ADS, ServiceName: v.Name}
	case ir.DiscoverStatic:
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		return setEndpoints(v, c, isReachable, "an IP address or the path of a Unix socket")
	case ir.DiscoverStrictDNS:
		c.ClusterDiscoveryType = dnsType(v, false)
		return setEndpoints(v, c, isResolvable, "an IP address or a DNS name")
	case ir.DiscoverLogicalDNS:
		c.ClusterDiscoveryType = dnsType(v, true)
		return setSingleEndpoint(v, c)
	case ir.DiscoverOriginalDst:
		c.ClusterDiscoveryType = originalDst
		if v.UpstreamPort != 0 {
			c.LbConfig = &clusterv3.Cluster_OriginalDstLbConfig_{OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{
				UpstreamPortOverride: wrapperspb.UInt32(v.UpstreamPort),
			}}
		}
		if v.Inbound && v.Name != ir.InboundPassthroughCluster {
			c.CleanupInterval = noCleanup
		}
	case ir.DiscoverDynamicDNS:
		c.ClusterDiscoveryType = forwardProxy(v, false)
	default:
		return fmt.Errorf("unknown discovery %d", v.Discovery)
	}
	return nil
}

func isResolvable(address string) bool { return envoyproto.UnixPath(address) == "" && address != "" }

func setEndpoints(v *ir.Cluster, c *clusterv3.Cluster, usable func(string) bool, want string) error {
	for _, l := range v.Localities {
		for _, e := range l.Endpoints {
			if !usable(e.Address) {
				return fmt.Errorf("endpoint %q: must be %s", e.Address, want)
			}
		}
	}
	if len(v.Localities) > 0 {
		c.LoadAssignment = assignment(v.Name, v.Localities, v.AutoTLS, usable)
	}
	return nil
}

// setSingleEndpoint sets the only endpoint of a logical DNS cluster.
func setSingleEndpoint(v *ir.Cluster, c *clusterv3.Cluster) error {
	n := 0
	for _, l := range v.Localities {
		n += len(l.Endpoints)
	}
	if n != 1 || len(v.Localities) != 1 {
		return fmt.Errorf("resolution DNS_ROUND_ROBIN: needs exactly one endpoint, not %d", n)
	}
	return setEndpoints(v, c, isResolvable, "an IP address or a DNS name")
}
