package envoyfilter

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dnscommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
)

// moveDNS moves what patches say about DNS to where Envoy reads it. They write the fields of Cluster, as for Istio's clusters of type
// STRICT_DNS and LOGICAL_DNS. Envoy ignores these fields of clusters whose type is an extension, as that of Moonsail's is.
func moveDNS(c *clusterv3.Cluster) error {
	as, dns := c.GetClusterType(), &dnsv3.DnsCluster{}
	if !as.GetTypedConfig().MessageIs(dns) {
		return nil
	}
	if err := as.GetTypedConfig().UnmarshalTo(dns); err != nil {
		return err
	}
	if err := setDNS(c, dns); err != nil {
		return err
	}
	config, err := packed(dns)
	if err != nil {
		return err
	}
	as.TypedConfig = config
	clearDNS(c)
	return nil
}

// setDNS sets what a cluster has. As in Istio a patch cannot set the default value of a field.
//
//nolint:staticcheck // EnvoyFilters still use the deprecated fields
func setDNS(c *clusterv3.Cluster, dns *dnsv3.DnsCluster) error {
	if c.DnsRefreshRate != nil {
		dns.DnsRefreshRate = c.DnsRefreshRate
	}
	if c.DnsJitter != nil {
		dns.DnsJitter = c.DnsJitter
	}
	if r := c.DnsFailureRefreshRate; r != nil {
		dns.DnsFailureRefreshRate = &dnsv3.DnsCluster_RefreshRate{BaseInterval: r.BaseInterval, MaxInterval: r.MaxInterval}
	}
	dns.RespectDnsTtl = dns.RespectDnsTtl || c.RespectDnsTtl
	if c.DnsLookupFamily != clusterv3.Cluster_AUTO {
		dns.DnsLookupFamily = dnscommonv3.DnsLookupFamily(dnscommonv3.DnsLookupFamily_value[c.DnsLookupFamily.String()])
	}
	resolver, err := resolverOf(c)
	if resolver != nil {
		dns.TypedDnsResolverConfig = resolver
	}
	return err
}

// resolverOf is the resolver that a cluster has, in the new or an old form; nil: none.
func resolverOf(c *clusterv3.Cluster) (*corev3.TypedExtensionConfig, error) {
	if c.TypedDnsResolverConfig != nil {
		return c.TypedDnsResolverConfig, nil
	}
	cares := oldResolver(c)
	if cares == nil {
		return nil, nil
	}
	config, err := packed(cares)
	return &corev3.TypedExtensionConfig{Name: "envoy.network.dns_resolver.cares", TypedConfig: config}, err
}

// oldResolver is the resolver by the deprecated fields, as Envoy reads them; nil: none is set.
//
//nolint:staticcheck // EnvoyFilters still use the deprecated fields
func oldResolver(c *clusterv3.Cluster) *caresv3.CaresDnsResolverConfig {
	switch old := c.DnsResolutionConfig; {
	case old != nil:
		return &caresv3.CaresDnsResolverConfig{Resolvers: old.Resolvers, DnsResolverOptions: old.DnsResolverOptions}
	case len(c.DnsResolvers) > 0 || c.UseTcpForDnsLookups:
		return &caresv3.CaresDnsResolverConfig{
			Resolvers: c.DnsResolvers, DnsResolverOptions: &corev3.DnsResolverOptions{UseTcpForDnsLookups: c.UseTcpForDnsLookups},
		}
	}
	return nil
}

//nolint:staticcheck // EnvoyFilters still use the deprecated fields
func clearDNS(c *clusterv3.Cluster) {
	c.DnsRefreshRate, c.DnsJitter, c.DnsFailureRefreshRate, c.TypedDnsResolverConfig = nil, nil, nil, nil
	c.RespectDnsTtl, c.DnsLookupFamily = false, clusterv3.Cluster_AUTO
	c.DnsResolutionConfig, c.DnsResolvers, c.UseTcpForDnsLookups = nil, nil, false
}
