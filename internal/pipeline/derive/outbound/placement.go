package outbound

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// placement is where clients reach one port of a service.
type placement struct {
	keys   []ir.ListenerKey
	routes ir.RouteConfigKey
	// prefixes are the service's addresses if other services use the listeners, too. They match its connections.
	prefixes []netip.Prefix
	shared   bool // other services use the same listeners
	bound    bool // the egress listener has an address or a port
	sniffed  bool // the route configuration belongs to the service alone, and takes any host
}

// place finds the listeners for a port. As in Istio it leaves out addresses of the sidecar itself.
func place(r *index.Reader, e *index.Egress, svc *model.Service, port *model.ServicePort, p model.Protocol) placement {
	at := addressesOf(r.Client, e, svc, port, p)
	at.keys = slices.DeleteFunc(at.keys, func(k ir.ListenerKey) bool { return r.Reserved(r.Mesh(), k) })
	return at
}

// addressesOf finds listener addresses as Istio does. HTTP ports of one number share a listener. Other ports have one for
// each of the service's addresses, if it has any.
func addressesOf(c *index.Client, e *index.Egress, svc *model.Service, port *model.ServicePort, p model.Protocol) placement {
	if e.Port != nil || e.CaptureNone(c.Key.Interception) {
		return placeBound(c, e, port)
	}
	at := placement{routes: ir.PortRoutes(port.Number), shared: true}
	var own []netip.Prefix
	if !p.IsHTTP() && svc != nil {
		own = c.Addresses(svc)
	}
	if len(own) == 0 {
		at.keys = []ir.ListenerKey{{Address: c.Any(), Port: port.Number}}
		return at
	}
	for _, a := range own {
		if a.IsSingleIP() {
			at.keys = append(at.keys, ir.ListenerKey{Address: a.Addr().String(), Port: port.Number})
		} else {
			at.prefixes = append(at.prefixes, a)
		}
	}
	if len(at.prefixes) > 0 {
		at.keys = append(at.keys, ir.ListenerKey{Address: c.Any(), Port: port.Number})
		return at
	}
	at.shared = false
	at.sniffed = p == model.ProtocolAuto
	if at.sniffed {
		at.routes = ir.HostRoutes(svc.Hostname, port.Number)
	}
	return at
}

// placeBound places a port at an egress listener that has an address or a port.
func placeBound(c *index.Client, e *index.Egress, port *model.ServicePort) placement {
	at := placement{routes: e.Routes, shared: true, bound: true}
	number := port.Number
	if e.Port != nil {
		number = e.Port.Number
	}
	if at.routes.Name == "" {
		at.routes = ir.PortRoutes(number)
	}
	if c.Key.Interception != model.InterceptNone && e.CaptureNone(c.Key.Interception) {
		// Route configurations of redirected listeners pass requests on to their original destination. Here there is none.
		at.routes = ir.AddressRoutes(cmp.Or(e.Bind, c.Local()), number)
	}
	if k, ok := c.Listen(e, number); ok {
		at.keys = []ir.ListenerKey{k}
	}
	return at
}

// placePods places a port of a headless service at a listener for each Pod: clients choose a Pod by its address, and other
// services may have the same port. The listener stays as long as the Pod, ready or not, because Envoy closes the
// connections of a listener that goes.
func placePods(r *index.Reader, svc *model.Service, port *model.ServicePort, p model.Protocol) placement {
	at := placement{routes: ir.PortRoutes(port.Number)}
	r.Used.AddAll(r.Endpoints(svc).Members())
	for _, a := range r.Places(svc) {
		at.keys = append(at.keys, ir.ListenerKey{Address: a, Port: port.Number})
	}
	if p == model.ProtocolAuto {
		at.sniffed, at.routes = true, ir.HostRoutes(svc.Hostname, port.Number)
	}
	return at
}

// taken reports whether an egress listener with a port listens where e would, which takes all ports.
func taken(c *index.Client, e *index.Egress, at placement) bool {
	return e.Port == nil && slices.ContainsFunc(at.keys, c.Taken)
}
