package derive

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/moonsail/moonsail/internal/model"
)

const (
	anyAddress   = "0.0.0.0"
	localAddress = "127.0.0.1"
)

// placement is where one port of a service is reached.
type placement struct {
	keys        []listenerKey
	routeConfig string
	// prefixes are the service's addresses where the listener is not its own: connections
	// are told apart by them.
	prefixes []netip.Prefix
	// shared tells that other services use the same listeners.
	shared bool
	// sniffed tells that the route configuration is the service's alone: any host goes.
	sniffed bool
}

// place finds listener addresses as Istio does: HTTP ports share one listener a port
// number, others have one for each of the service's addresses, if it has any.
func (s *scope) place(e *egress, svc *model.Service, port *model.ServicePort, p model.Protocol) placement {
	if e.Port != nil || e.captureNone(s.Key.Interception) {
		return s.placeBound(e, port)
	}
	at := placement{routeConfig: fmt.Sprint(port.Number), shared: true}
	if p.IsHTTP() || svc == nil || len(svc.Addresses) == 0 {
		at.keys = []listenerKey{{anyAddress, port.Number}}
		return at
	}
	for _, a := range svc.Addresses {
		if a.IsSingleIP() {
			at.keys = append(at.keys, listenerKey{a.Addr().String(), port.Number})
		} else {
			at.prefixes = append(at.prefixes, a)
		}
	}
	if len(at.prefixes) > 0 {
		at.keys = append(at.keys, listenerKey{anyAddress, port.Number})
		return at
	}
	at.shared = false
	at.sniffed = p == model.ProtocolAuto
	if at.sniffed {
		at.routeConfig = fmt.Sprintf("%s:%d", svc.Hostname, port.Number)
	}
	return at
}

// placeBound places ports at an egress listener that has an address or port of its own.
func (s *scope) placeBound(e *egress, port *model.ServicePort) placement {
	at := placement{routeConfig: e.routeConfig, shared: true}
	number := port.Number
	if e.Port != nil {
		number = e.Port.Number
	}
	if at.routeConfig == "" {
		at.routeConfig = fmt.Sprint(number)
	}
	address := e.Bind
	if s.Key.Interception != model.InterceptNone && e.captureNone(s.Key.Interception) {
		// Redirected listeners of that port have route configurations that pass on to
		// original destinations; here there is none.
		at.routeConfig = fmt.Sprintf("%s_%d", cmp.Or(address, localAddress), number)
	}
	switch {
	case address != "":
	case e.captureNone(s.Key.Interception):
		address = localAddress
	default:
		address = anyAddress
	}
	at.keys = []listenerKey{{address, number}}
	return at
}
