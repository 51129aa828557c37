package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// Listeners of one Gateway of the Gateway API that share a port are isolated: a request is only for the one whose
// hostname is the narrowest that matches, even if none of that one's routes does. Envoy takes the narrowest virtual
// host, so that each has the routes of the listener that is the narrowest for it, and a listener has one of its own
// name where a wider one's would take what it has no routes for. Istio's servers are not isolated.

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
	return slices.ContainsFunc(p.servers, func(o boundServer) bool {
		return b.sibling(o) && b.wider(o) && o.server.Hosts[0].Host.Matches(h)
	})
}

// holds tells whether a listener needs a virtual host of its name, whatever is bound to it.
func (p *plannedRoutes) holds(h model.Host) bool {
	return slices.ContainsFunc(p.servers, func(o boundServer) bool {
		return o.isolated() && o.server.Hosts[0].Host == h && slices.ContainsFunc(p.servers, func(b boundServer) bool {
			return b.sibling(o) && b.wider(o)
		})
	})
}
