package istio

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// VirtualService decodes a VirtualService, or a delegate where it has no hosts.
func VirtualService(in convert.Cluster, o *networkingv1.VirtualService) (*model.VirtualService, problem.List) {
	c := virtualServiceConv{convert.Start(in, model.KindVirtualService, &o.ObjectMeta)}
	at, spec := problem.Path("spec"), &o.Spec
	v := &model.VirtualService{
		Meta:       c.Meta,
		Gateways:   c.gateways(at.Field("gateways"), spec.Gateways),
		Visibility: c.ExportTo(at.Field("exportTo"), spec.ExportTo, false),
	}
	delegate := len(spec.Hosts) == 0
	if delegate {
		c.delegateOnly(at, spec)
	} else if len(v.Gateways) == 0 {
		v.Gateways = []string{model.GatewayMesh}
	}
	v.Hosts = c.virtualHosts(at.Field("hosts"), spec.Hosts, len(spec.Gateways) == 0 || v.InMesh())
	if len(spec.Http) == 0 && len(spec.Tls) == 0 && len(spec.Tcp) == 0 {
		c.Errorf(code.MissingField, at, "has no routes; set at least one of http, tls and tcp")
	}
	rc := &routeConv{Converter: c.Converter, delegate: delegate, hosts: v.Hosts, gateway: len(v.Gateways) > 0 && !v.InMesh()}
	for i, r := range spec.Http {
		v.HTTP = append(v.HTTP, rc.httpRoute(at.Field("http").Index(i), r))
	}
	for i, r := range spec.Tls {
		v.TLS = append(v.TLS, rc.tlsRoute(at.Field("tls").Index(i), r))
	}
	for i, r := range spec.Tcp {
		v.TCP = append(v.TCP, rc.tcpRoute(at.Field("tcp").Index(i), r))
	}
	return v, c.Problems
}

// routeConv converts the routes of one virtual service.
type routeConv struct {
	*convert.Converter
	delegate bool
	gateway  bool // for gateways only
	hosts    []model.Host
}

func (c virtualServiceConv) delegateOnly(at problem.Path, spec *networking.VirtualService) {
	const why = "a VirtualService without hosts is a delegate, which cannot have %s; add hosts, or remove them"
	if len(spec.Gateways) > 0 {
		c.Errorf(code.NotAllowedHere, at.Field("gateways"), why, "gateways")
	}
	if len(spec.Tls) > 0 {
		c.Errorf(code.NotAllowedHere, at.Field("tls"), why, "tls routes")
	}
	if len(spec.Tcp) > 0 {
		c.Errorf(code.NotAllowedHere, at.Field("tcp"), why, "tcp routes")
	}
}

// virtualHosts resolves hosts, and reports hosts that occur twice.
func (c virtualServiceConv) virtualHosts(at problem.Path, list []string, inMesh bool) []model.Host {
	var out []model.Host
	for i, h := range list {
		if h == "*" && inMesh {
			c.Errorf(code.InvalidHost, at.Index(i), "\"*\" is for gateways only; name the hosts, or a wildcard such as *.example.com")
			continue
		}
		if !model.IsIP(h) && !c.CheckHost(at.Index(i), h, true) {
			continue
		}
		host := c.Host(h)
		for _, other := range out {
			if host.Overlaps(other) {
				c.Errorf(code.ListedTwice, at.Index(i), "%q and %q overlap; keep one of them", h, other)
				break
			}
		}
		out = append(out, host)
	}
	return out
}

// gateways makes names of gateways "mesh" or "namespace/name".
func (c virtualServiceConv) gateways(at problem.Path, list []string) []string {
	var out []string
	for i, g := range list {
		if name, ok := c.gateway(at.Index(i), g); ok {
			out = append(out, name)
		}
	}
	return out
}

func (c virtualServiceConv) gateway(at problem.Path, g string) (string, bool) {
	if g == model.GatewayMesh {
		return g, true
	}
	ns, name, slash := strings.Cut(g, "/")
	switch {
	case !slash && strings.Contains(g, "."):
		parts := strings.Split(g, ".")
		if convert.HostError(g, false) != "" {
			break
		}
		c.Warnf(code.Deprecated, at, "%q is an old spelling; write %s/%s", g, parts[1], parts[0])
		return parts[1] + "/" + parts[0], true
	case !slash:
		ns, name = c.Meta.Namespace, g
	case ns == convert.ExportHere:
		ns = c.Meta.Namespace
	}
	if !convert.IsLabel(ns) || !convert.IsName(name) {
		c.Errorf(code.InvalidName, at, "%q is not a gateway; write \"mesh\", the name of a gateway of this namespace, or namespace/name", g)
		return "", false
	}
	return ns + "/" + name, true
}

// destination converts a destination, which must name a service.
func (c virtualServiceConv) destination(at problem.Path, d *networking.Destination) model.Destination {
	if d == nil {
		c.Errorf(code.MissingField, at, "is missing; name the service to send to, as destination.host")
		return model.Destination{}
	}
	out := model.Destination{Subset: d.Subset}
	switch {
	case d.Host == "*":
		c.Errorf(code.InvalidHost, at.Field("host"), "\"*\" is not a service; name one")
	case c.CheckHost(at.Field("host"), d.Host, true):
		out.Host = c.Host(d.Host)
	}
	if d.Subset != "" && !convert.IsLabel(d.Subset) {
		c.Errorf(code.InvalidName, at.Field("subset"), "%q is not a subset's name: use at most 63 letters, digits and '-'", d.Subset)
	}
	if d.Port != nil {
		c.CheckPort(at.Field("port").Field("number"), d.Port.Number)
		out.Port = d.Port.Number
	}
	return out
}

// totalWeight checks that weights of several destinations are not all zero.
func (c virtualServiceConv) totalWeight(at problem.Path, n int, total int64) {
	if n > 1 && total == 0 {
		c.Errorf(code.InvalidNumber, at, "all weights are 0, so no destination gets requests; set weights that add up to 100")
	}
	if total > 1<<32-1 {
		c.Errorf(code.InvalidNumber, at, "the weights add up to %d; use weights that add up to 100", total)
	}
}

func (c *routeConv) tlsRoute(at problem.Path, r *networking.TLSRoute) model.TLSRoute {
	if len(r.Match) == 0 {
		c.Errorf(code.MissingField, at.Field("match"), "is missing; a tls route needs a match with sniHosts")
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
		c.Errorf(code.MissingField, at.Field("sniHosts"), "is missing; name at least one host")
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
		c.Warnf(code.InvalidHost, at, "%q is an IP address, which clients do not send as SNI; match destinationSubnets", h)
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
	c.Errorf(code.InvalidName, at, "%q is not one of the hosts of the VirtualService; add it to spec.hosts", h)
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
			c.Warnf(code.NoEffect, at.Field("sourceSubnet"), "has no effect; match sourceLabels")
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
		c.Errorf(code.MissingField, at, "is missing; name the service to send to")
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
