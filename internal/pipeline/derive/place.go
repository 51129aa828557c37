package derive

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// The addresses of any host and of the workload itself, by IP family.
const (
	anyAddress    = "0.0.0.0"
	anyAddress6   = "::"
	localAddress  = "127.0.0.1"
	localAddress6 = "::1"
)

// any is the address of listeners that take connections to all. With both families it is
// IPv4's, and listenOn adds the other.
func (s *proxyGroup) any() string {
	if s.Key.Families == model.IPv6 {
		return anyAddress6
	}
	return anyAddress
}

// local is where the workload's own processes reach each other.
func (s *proxyGroup) local() string {
	if s.Key.Families == model.IPv6 {
		return localAddress6
	}
	return localAddress
}

// listenOn has a listener for all addresses take those of both families.
func (s *proxyGroup) listenOn(l *ir.Listener) {
	if s.Key.Families == model.DualStack && l.Address == anyAddress {
		l.Also = anyAddress6
	}
}

// headers are which the scope's proxies set: as they say, else as the mesh says.
func (s *proxyGroup) headers(mesh *model.Mesh) model.ProxyHeaders {
	if s.Key.Headers.Said {
		return s.Key.Headers
	}
	return mesh.Headers
}

// normalize has the listener's requests have their paths as the mesh says, before anything looks at them, proxies
// set headers as is said, and silent clients be waited for as long as the mesh says.
func (s *proxyGroup) normalize(mesh *model.Mesh, l *ir.Listener) {
	if d := mesh.DetectionTimeout; d != nil && l.ContinueOnTimeout {
		l.InspectTimeout, l.InspectForever = *d, *d == 0
	}
	for i := range l.Chains {
		if http := l.Chains[i].HTTP; http != nil {
			http.Paths, http.Headers = mesh.Paths, s.headers(mesh)
		}
	}
	if l.Default != nil && l.Default.HTTP != nil {
		l.Default.HTTP.Paths, l.Default.HTTP.Headers = mesh.Paths, s.headers(mesh)
	}
}

// placement is where one port of a service is reached.
type placement struct {
	keys   []listenerKey
	routes ir.RouteConfigKey
	// prefixes are the service's addresses where the listener is not its own: connections
	// are told apart by them.
	prefixes []netip.Prefix
	// shared tells that other services use the same listeners.
	shared bool
	// bound tells that the egress listener has an address or a port of its own.
	bound bool
	// sniffed tells that the route configuration is the service's alone: any host goes.
	sniffed bool
}

// place finds listener addresses, without those that are the sidecar's own: with Istio, too, there is no listener then.
func (s *proxyGroup) place(r *reader, e *egress, svc *model.Service, port *model.ServicePort, p model.Protocol) placement {
	at := s.addressesOf(e, svc, port, p)
	at.keys = slices.DeleteFunc(at.keys, func(k listenerKey) bool { return s.reserved(r.mesh(), k) })
	return at
}

// portOfMetrics is where Envoy itself serves its metrics, by a listener of the bootstrap. Connections to that port are
// not redirected to the sidecar that has it, and those out of the workload pass through.
const portOfMetrics = 15090

// reserved tells whether redirected connections come to an address, or those for Envoy's metrics. Envoy refuses the second
// listener of an address, also where one of them is not bound, so that a service of that port would leave new sidecars
// without virtualInbound.
func (s *proxyGroup) reserved(mesh *model.Mesh, k listenerKey) bool {
	return s.Key.Interception != model.InterceptNone && s.Key.Type == model.ProxySidecar &&
		k.address == s.any() && (k.port == mesh.InboundPort || k.port == mesh.OutboundPort || k.port == portOfMetrics)
}

// addressesOf finds listener addresses as Istio does: HTTP ports share one listener a port
// number, others have one for each of the service's addresses, if it has any.
func (s *proxyGroup) addressesOf(e *egress, svc *model.Service, port *model.ServicePort, p model.Protocol) placement {
	if e.Port != nil || e.captureNone(s.Key.Interception) {
		return s.placeBound(e, port)
	}
	at := placement{routes: ir.PortRoutes(port.Number), shared: true}
	var own []netip.Prefix
	if !p.IsHTTP() && svc != nil {
		own = s.addresses(svc)
	}
	if len(own) == 0 {
		at.keys = []listenerKey{{s.any(), port.Number}}
		return at
	}
	for _, a := range own {
		if a.IsSingleIP() {
			at.keys = append(at.keys, listenerKey{a.Addr().String(), port.Number})
		} else {
			at.prefixes = append(at.prefixes, a)
		}
	}
	if len(at.prefixes) > 0 {
		at.keys = append(at.keys, listenerKey{s.any(), port.Number})
		return at
	}
	at.shared = false
	at.sniffed = p == model.ProtocolAuto
	if at.sniffed {
		at.routes = ir.HostRoutes(svc.Hostname, port.Number)
	}
	return at
}

// placeBound places ports at an egress listener that has an address or port of its own.
func (s *proxyGroup) placeBound(e *egress, port *model.ServicePort) placement {
	at := placement{routes: e.routes, shared: true, bound: true}
	number := port.Number
	if e.Port != nil {
		number = e.Port.Number
	}
	if at.routes.Name == "" {
		at.routes = ir.PortRoutes(number)
	}
	address := e.Bind
	if s.Key.Interception != model.InterceptNone && e.captureNone(s.Key.Interception) {
		// Redirected listeners of that port have route configurations that pass on to
		// original destinations; here there is none.
		at.routes = ir.AddressRoutes(cmp.Or(address, s.local()), number)
	}
	switch {
	case address != "":
	case e.captureNone(s.Key.Interception):
		address = s.local()
	default:
		address = s.any()
	}
	if k := (listenerKey{address, number}); !e.captureNone(s.Key.Interception) || s.opens(k) {
		at.keys = []listenerKey{k}
	}
	return at
}

// placePods gives each Pod of a headless service a listener: clients choose a Pod by its
// address, and other services may have the same port. It lasts as long as the Pod: Envoy closes the connections of
// a listener that goes, and a Pod that is not ready for a moment, or ends in peace, still has its own.
func placePods(r *reader, svc *model.Service, port *model.ServicePort, p model.Protocol) placement {
	at := placement{routes: ir.PortRoutes(port.Number)}
	r.used.AddAll(r.endpoints(svc).members())
	for _, a := range r.places(svc) {
		at.keys = append(at.keys, listenerKey{a, port.Number})
	}
	if p == model.ProtocolAuto {
		at.sniffed, at.routes = true, ir.HostRoutes(svc.Hostname, port.Number)
	}
	return at
}

// taken tells whether an egress listener with a port of its own listens where the catch-all
// listener e would: only its hosts are served there.
func (s *proxyGroup) taken(e *egress, at placement) bool {
	if e.Port != nil {
		return false
	}
	return slices.ContainsFunc(at.keys, func(k listenerKey) bool { return s.own[k] })
}

// setEgress puts the Sidecar's egress listeners in force.
func (s *proxyGroup) setEgress(sidecar *model.Sidecar) {
	s.sidecar, s.egress, s.own = sidecar, egressOf(sidecar, s.Key.Namespace), map[listenerKey]bool{}
	for i := range s.egress {
		if e := &s.egress[i]; e.Port != nil {
			for _, k := range s.placeBound(e, &model.ServicePort{Number: e.Port.Number}).keys {
				s.own[k] = true
			}
		}
	}
	s.askForIngress()
}
