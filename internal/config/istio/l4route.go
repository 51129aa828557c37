package istio

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

func (c *routeConv) tlsRoute(at problem.Path, r *networking.TLSRoute) model.TLSRoute {
	if len(r.Match) == 0 {
		c.Errorf(at.Field("match"), "is missing; a tls route needs a match with sniHosts")
	}
	out := model.TLSRoute{Backends: c.l4Backends(at.Field("route"), r.Route)}
	for i, m := range r.Match {
		out.Matches = append(out.Matches, c.tlsMatch(at.Field("match").Index(i), m))
	}
	return out
}

func (c *routeConv) tlsMatch(at problem.Path, m *networking.TLSMatchAttributes) model.L4Match {
	out := model.L4Match{
		Destinations: c.Prefixes(at.Field("destinationSubnets"), m.DestinationSubnets),
		Port:         m.Port, SourceLabels: m.SourceLabels, SourceNamespace: m.SourceNamespace,
		Gateways: virtualServiceConv{c.Converter}.gateways(at.Field("gateways"), m.Gateways),
	}
	if m.Port != 0 {
		c.CheckPort(at.Field("port"), m.Port)
	}
	virtualServiceConv{c.Converter}.source(at, m.SourceLabels, m.SourceNamespace)
	if len(m.SniHosts) == 0 {
		c.Errorf(at.Field("sniHosts"), "is missing; name at least one host")
	}
	for i, h := range m.SniHosts {
		if host, ok := c.sniHost(at.Field("sniHosts").Index(i), h); ok {
			out.SNIHosts = append(out.SNIHosts, host)
		}
	}
	return out
}

// sniHost checks that the virtual service is about the host. SNI is never a short
// name, but the virtual service's hosts may have been: both spellings are known.
func (c *routeConv) sniHost(at problem.Path, h string) (model.Host, bool) {
	if model.IsIP(h) {
		c.Warnf(at, "%q is an IP address, which clients do not send as SNI; match destinationSubnets", h)
		return model.Host(h), true
	}
	if !c.CheckHost(at, h, true) {
		return "", false
	}
	host, full := model.Host(strings.ToLower(h)), c.Host(h)
	for _, v := range c.hosts {
		if v.Matches(host) || v.Matches(full) {
			return host, true
		}
	}
	c.Errorf(at, "%q is not one of the hosts of the VirtualService; add it to spec.hosts", h)
	return "", false
}

func (c *routeConv) tcpRoute(at problem.Path, r *networking.TCPRoute) model.TCPRoute {
	out := model.TCPRoute{Backends: c.l4Backends(at.Field("route"), r.Route)}
	for i, m := range r.Match {
		at := at.Field("match").Index(i)
		if m.Port != 0 {
			c.CheckPort(at.Field("port"), m.Port)
		}
		if m.SourceSubnet != "" {
			c.Warnf(at.Field("sourceSubnet"), "has no effect; match sourceLabels")
		}
		virtualServiceConv{c.Converter}.source(at, m.SourceLabels, m.SourceNamespace)
		out.Matches = append(out.Matches, model.L4Match{
			Destinations: c.Prefixes(at.Field("destinationSubnets"), m.DestinationSubnets),
			Port:         m.Port, SourceLabels: m.SourceLabels, SourceNamespace: m.SourceNamespace,
			Gateways: virtualServiceConv{c.Converter}.gateways(at.Field("gateways"), m.Gateways),
		})
	}
	return out
}

func (c *routeConv) l4Backends(at problem.Path, list []*networking.RouteDestination) []model.Backend {
	if len(list) == 0 {
		c.Errorf(at, "is missing; name the service to send to")
	}
	out := make([]model.Backend, 0, len(list))
	var total int64
	for i, d := range list {
		b := model.Backend{
			Destination: virtualServiceConv{c.Converter}.destination(at.Index(i).Field("destination"), d.Destination),
			Weight:      c.Weight(at.Index(i).Field("weight"), d.Weight),
		}
		total += int64(b.Weight)
		out = append(out, b)
	}
	virtualServiceConv{c.Converter}.totalWeight(at, len(list), total)
	return out
}
