package istio

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/model"
)

func (c *routeConv) tlsRoute(at path, r *networking.TLSRoute) model.TLSRoute {
	if len(r.Match) == 0 {
		c.errorf(at.f("match"), "is missing; a tls route needs a match with sniHosts")
	}
	out := model.TLSRoute{Backends: c.l4Backends(at.f("route"), r.Route)}
	for i, m := range r.Match {
		out.Matches = append(out.Matches, c.tlsMatch(at.f("match").i(i), m))
	}
	return out
}

func (c *routeConv) tlsMatch(at path, m *networking.TLSMatchAttributes) model.L4Match {
	out := model.L4Match{
		Destinations: c.prefixes(at.f("destinationSubnets"), m.DestinationSubnets),
		Port:         m.Port, SourceLabels: m.SourceLabels, SourceNamespace: m.SourceNamespace,
		Gateways: c.gateways(at.f("gateways"), m.Gateways),
	}
	if m.Port != 0 {
		c.checkPort(at.f("port"), m.Port)
	}
	c.source(at, m.SourceLabels, m.SourceNamespace)
	if len(m.SniHosts) == 0 {
		c.errorf(at.f("sniHosts"), "is missing; name at least one host")
	}
	for i, h := range m.SniHosts {
		if host, ok := c.sniHost(at.f("sniHosts").i(i), h); ok {
			out.SNIHosts = append(out.SNIHosts, host)
		}
	}
	return out
}

// sniHost checks that the virtual service is about the host. SNI is never a short
// name, but the virtual service's hosts may have been: both spellings are known.
func (c *routeConv) sniHost(at path, h string) (model.Host, bool) {
	if model.IsIP(h) {
		c.warnf(at, "%q is an IP address, which clients do not send as SNI; match destinationSubnets", h)
		return model.Host(h), true
	}
	if !c.checkHost(at, h, true) {
		return "", false
	}
	host, full := model.Host(strings.ToLower(h)), c.host(h)
	for _, v := range c.hosts {
		if v.Matches(host) || v.Matches(full) {
			return host, true
		}
	}
	c.errorf(at, "%q is not one of the hosts of the VirtualService; add it to spec.hosts", h)
	return "", false
}

func (c *routeConv) tcpRoute(at path, r *networking.TCPRoute) model.TCPRoute {
	out := model.TCPRoute{Backends: c.l4Backends(at.f("route"), r.Route)}
	for i, m := range r.Match {
		at := at.f("match").i(i)
		if m.Port != 0 {
			c.checkPort(at.f("port"), m.Port)
		}
		if m.SourceSubnet != "" {
			c.warnf(at.f("sourceSubnet"), "has no effect; match sourceLabels")
		}
		c.source(at, m.SourceLabels, m.SourceNamespace)
		out.Matches = append(out.Matches, model.L4Match{
			Destinations: c.prefixes(at.f("destinationSubnets"), m.DestinationSubnets),
			Port:         m.Port, SourceLabels: m.SourceLabels, SourceNamespace: m.SourceNamespace,
			Gateways: c.gateways(at.f("gateways"), m.Gateways),
		})
	}
	return out
}

func (c *routeConv) l4Backends(at path, list []*networking.RouteDestination) []model.Backend {
	if len(list) == 0 {
		c.errorf(at, "is missing; name the service to send to")
	}
	out := make([]model.Backend, 0, len(list))
	var total int64
	for i, d := range list {
		b := model.Backend{
			Destination: c.destination(at.i(i).f("destination"), d.Destination),
			Weight:      c.weight(at.i(i).f("weight"), d.Weight),
		}
		total += int64(b.Weight)
		out = append(out, b)
	}
	c.totalWeight(at, len(list), total)
	return out
}
