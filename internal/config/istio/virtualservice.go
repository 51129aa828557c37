package istio

import (
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	networkingv1 "istio.io/client-go/pkg/apis/networking/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// VirtualService decodes a VirtualService, or a delegate where it has no hosts.
func (d Decoder) VirtualService(o *networkingv1.VirtualService) (*model.VirtualService, Problems) {
	c := d.start(model.KindVirtualService, &o.ObjectMeta)
	at, spec := path("spec"), &o.Spec
	v := &model.VirtualService{
		Meta:       c.meta,
		Gateways:   c.gateways(at.f("gateways"), spec.Gateways),
		Visibility: c.exportTo(at.f("exportTo"), spec.ExportTo, false),
	}
	delegate := len(spec.Hosts) == 0
	if delegate {
		c.delegateOnly(at, spec)
	} else if len(v.Gateways) == 0 {
		v.Gateways = []string{model.GatewayMesh}
	}
	v.Hosts = c.virtualHosts(at.f("hosts"), spec.Hosts, len(spec.Gateways) == 0 || v.InMesh())
	if len(spec.Http) == 0 && len(spec.Tls) == 0 && len(spec.Tcp) == 0 {
		c.errorf(at, "has no routes; give at least one of http, tls and tcp")
	}
	rc := &routeConv{conv: c, delegate: delegate, hosts: v.Hosts, gateway: len(v.Gateways) > 0 && !v.InMesh()}
	for i, r := range spec.Http {
		v.HTTP = append(v.HTTP, rc.httpRoute(at.f("http").i(i), r))
	}
	for i, r := range spec.Tls {
		v.TLS = append(v.TLS, rc.tlsRoute(at.f("tls").i(i), r))
	}
	for i, r := range spec.Tcp {
		v.TCP = append(v.TCP, rc.tcpRoute(at.f("tcp").i(i), r))
	}
	return v, c.list
}

// routeConv converts the routes of one virtual service.
type routeConv struct {
	*conv
	delegate bool
	gateway  bool // for gateways only
	hosts    []model.Host
}

func (c *conv) delegateOnly(at path, spec *networking.VirtualService) {
	const why = "a VirtualService without hosts is a delegate, which cannot have %s; add hosts, or remove them"
	if len(spec.Gateways) > 0 {
		c.errorf(at.f("gateways"), why, "gateways")
	}
	if len(spec.Tls) > 0 {
		c.errorf(at.f("tls"), why, "tls routes")
	}
	if len(spec.Tcp) > 0 {
		c.errorf(at.f("tcp"), why, "tcp routes")
	}
}

// virtualHosts resolves hosts, and reports those that say the same twice.
func (c *conv) virtualHosts(at path, list []string, inMesh bool) []model.Host {
	var out []model.Host
	for i, h := range list {
		if h == "*" && inMesh {
			c.errorf(at.i(i), "\"*\" is for gateways only; name the hosts, or a wildcard such as *.example.com")
			continue
		}
		if !model.IsIP(h) && !c.checkHost(at.i(i), h, true) {
			continue
		}
		host := c.host(h)
		for _, other := range out {
			if host.Overlaps(other) {
				c.errorf(at.i(i), "%q and %q overlap; keep one of them", h, other)
				break
			}
		}
		out = append(out, host)
	}
	return out
}

// gateways makes names of gateways "mesh" or "namespace/name".
func (c *conv) gateways(at path, list []string) []string {
	var out []string
	for i, g := range list {
		if name, ok := c.gateway(at.i(i), g); ok {
			out = append(out, name)
		}
	}
	return out
}

func (c *conv) gateway(at path, g string) (string, bool) {
	if g == model.GatewayMesh {
		return g, true
	}
	ns, name, slash := strings.Cut(g, "/")
	switch {
	case !slash && strings.Contains(g, "."):
		parts := strings.Split(g, ".")
		if hostError(g, false) != "" {
			break
		}
		c.warnf(at, "%q is an old spelling; write %s/%s", g, parts[1], parts[0])
		return parts[1] + "/" + parts[0], true
	case !slash:
		ns, name = c.meta.Namespace, g
	case ns == exportHere:
		ns = c.meta.Namespace
	}
	if !isLabel(ns) || !isName(name) {
		c.errorf(at, "%q is not a gateway; write \"mesh\", the name of a gateway of this namespace, or namespace/name", g)
		return "", false
	}
	return ns + "/" + name, true
}

// isName tells whether s could be an object's name.
func isName(s string) bool { return s != "" && hostError(s, false) == "" }

// destination converts a destination, which must name a service.
func (c *conv) destination(at path, d *networking.Destination) model.Destination {
	if d == nil {
		c.errorf(at, "is missing; name the service to send to, as destination.host")
		return model.Destination{}
	}
	out := model.Destination{Subset: d.Subset}
	switch {
	case d.Host == "*":
		c.errorf(at.f("host"), "\"*\" is not a service; name one")
	case c.checkHost(at.f("host"), d.Host, true):
		out.Host = c.host(d.Host)
	}
	if d.Subset != "" && !isLabel(d.Subset) {
		c.errorf(at.f("subset"), "%q is not a subset's name: use at most 63 letters, digits and '-'", d.Subset)
	}
	if d.Port != nil {
		c.checkPort(at.f("port").f("number"), d.Port.Number)
		out.Port = d.Port.Number
	}
	return out
}

// totalWeight checks that weights of several destinations are not all zero.
func (c *conv) totalWeight(at path, n int, total int64) {
	if n > 1 && total == 0 {
		c.errorf(at, "all weights are 0, so no destination gets requests; set weights that add up to 100")
	}
	if total > 1<<32-1 {
		c.errorf(at, "the weights add up to %d; use weights that add up to 100", total)
	}
}

// weight of a destination; a single one gets everything.
func (c *conv) weight(at path, w int32) uint32 {
	if w < 0 {
		c.errorf(at, "%d is negative; use a weight of 0 or more", w)
		return 0
	}
	return uint32(w)
}
