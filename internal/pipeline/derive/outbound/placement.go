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
	sniffed  bool // the route configuration belongs to the service alone, and takes any host
}

// place finds the listeners for a port. As in Istio it leaves out addresses of the sidecar itself.
func place(r *index.Reader, e *index.Egress, svc *model.Service, port *model.ServicePort, p model.Protocol) []placement {
	out := placements(r.Client, e, svc, port, p)
	for i := range out {
		out[i].keys = slices.DeleteFunc(out[i].keys, func(k ir.ListenerKey) bool { return r.Reserved(r.Mesh(), k) })
	}
	return slices.DeleteFunc(out, func(at placement) bool { return len(at.keys) == 0 || taken(r.Client, e, at) })
}

// placements finds listener addresses as Istio does. HTTP ports of one number share a listener. Other ports have one for
// each of the service's addresses, if it has any, and share one for its address ranges.
func placements(c *index.Client, e *index.Egress, svc *model.Service, port *model.ServicePort, p model.Protocol) []placement {
	if e.Port != nil || e.CaptureNone(c.Key.Interception) {
		return []placement{placeBound(c, e, port)}
	}
	shared := placement{routes: ir.PortRoutes(port.Number), shared: true}
	shared.keys = []ir.ListenerKey{{Address: c.Any(), Port: port.Number}}
	if p.IsHTTP() || svc == nil {
		return []placement{shared}
	}
	own := placement{routes: shared.routes}
	if p == model.ProtocolAuto {
		own.sniffed, own.routes = true, ir.HostRoutes(svc.Hostname, port.Number)
	}
	for _, a := range c.Addresses(svc) {
		if a.IsSingleIP() {
			own.keys = append(own.keys, ir.ListenerKey{Address: a.Addr().String(), Port: port.Number})
		} else {
			shared.prefixes = append(shared.prefixes, a)
		}
	}
	switch {
	case len(own.keys) == 0:
		return []placement{shared}
	case len(shared.prefixes) == 0:
		return []placement{own}
	}
	return []placement{own, shared}
}

// placeBound places a port at an egress listener that has an address or a port.
func placeBound(c *index.Client, e *index.Egress, port *model.ServicePort) placement {
	at := placement{routes: e.Routes, shared: true}
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
func placePods(r *index.Reader, e *index.Egress, svc *model.Service, port *model.ServicePort, p model.Protocol) []placement {
	at := placement{routes: ir.PortRoutes(port.Number)}
	r.Used.AddAll(r.Endpoints(svc).Members())
	for _, a := range r.Places(svc) {
		if k := (ir.ListenerKey{Address: a, Port: port.Number}); !r.Reserved(r.Mesh(), k) {
			at.keys = append(at.keys, k)
		}
	}
	if p == model.ProtocolAuto {
		at.sniffed, at.routes = true, ir.HostRoutes(svc.Hostname, port.Number)
	}
	if len(at.keys) == 0 || taken(r.Client, e, at) {
		return nil
	}
	return []placement{at}
}

// taken reports whether an egress listener with a port listens where e would, which takes all ports.
func taken(c *index.Client, e *index.Egress, at placement) bool {
	return e.Port == nil && slices.ContainsFunc(at.keys, c.Taken)
}
