package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// Listeners of one Gateway of the Gateway API that share a port are isolated: a request is only for the one whose
// hostname is the narrowest that matches, even if none of that one's routes does. Envoy takes the narrowest virtual
// host, so that each has the routes of the listener that is the narrowest for it, and a listener has one of its own
// name where a wider one's would take what it has no routes for. Where TLS ends at them each has a route configuration of its own, and
// what is for another one is told to come by another connection (421). Istio's servers are not isolated.

// misdirectedRequest is the status of requests that came by another listener's connection.
const misdirectedRequest = 421

// isolated tells whether a server is a listener of the Gateway API.
func (b boundServer) isolated() bool { return b.server.Routes != nil }

// sibling tells whether both are listeners of one Gateway.
func (b boundServer) sibling(o boundServer) bool {
	return b.isolated() && o.isolated() && b.gateways[0] == o.gateways[0]
}

// wider tells whether each name of o is one of b's, and not the other way round.
func (b boundServer) wider(o boundServer) bool {
	x, y := b.server.Hosts[0].Host, o.server.Hosts[0].Host // a listener's are of one name
	return x != y && x.Matches(y)
}

// leaves tells whether requests for a host are for a narrower listener than b.
func (p *plannedRoutes) leaves(b boundServer, h model.Host) bool {
	return p.anyListener(func(o boundServer) bool {
		return b.sibling(o) && b.wider(o) && o.server.Hosts[0].Host.Matches(h)
	})
}

// holds tells whether a listener needs a virtual host of its name, whatever is bound to it.
func (p *plannedRoutes) holds(h model.Host) bool {
	return slices.ContainsFunc(p.servers, func(o boundServer) bool {
		return o.isolated() && o.server.Hosts[0].Host == h && p.anyListener(func(b boundServer) bool {
			return b.sibling(o) && b.wider(o)
		})
	})
}

// misdirected tells whether requests for a host belong to another listener, with TLS of its own.
func (p *plannedRoutes) misdirected(h model.Host) bool {
	return slices.ContainsFunc(p.others, func(o boundServer) bool { return o.server.Hosts[0].Host == h })
}

func (p *plannedRoutes) anyListener(f func(boundServer) bool) bool {
	return slices.ContainsFunc(p.servers, f) || slices.ContainsFunc(p.others, f)
}

// isolate has the route configurations of listeners with TLS know of one another: a client may send requests on a connection
// that it has for another listener's name.
func (p *gatewayPlan) isolate() {
	for _, l := range p.listeners {
		for _, b := range l.servers {
			if !l.tls || b.routes == "" || !b.isolated() {
				continue
			}
			r := p.routes[b.routes]
			for _, o := range l.servers {
				if o.routes != "" && o.routes != b.routes && b.sibling(o) {
					r.others = append(r.others, o)
				}
			}
		}
	}
}
