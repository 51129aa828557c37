package gateway

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
)

// Listeners of one Gateway of the Gateway API and its ListenerSets that share a port are isolated. A request belongs to the listener with the
// narrowest matching hostname, even if none of its routes matches. Envoy chooses the narrowest virtual host. Each virtual
// host therefore has the routes of the narrowest listener for it, and a listener has a virtual host of its hostname if
// otherwise a wider one would take its requests. Listeners that end TLS have a route configuration each; requests for
// another listener get status 421, so that clients use another connection. Istio's servers are not isolated.

// misdirectedRequest is the status of requests on another listener's connection.
const misdirectedRequest = 421

// sibling reports whether both are listeners of one Gateway or its ListenerSets.
func (b boundServer) sibling(o boundServer) bool {
	return b.server.IsListener() && o.server.IsListener() && b.root == o.root
}

// wider reports whether b matches each name of o, and not the other way round.
func (b boundServer) wider(o boundServer) bool {
	x, y := b.server.Hosts[0].Host, o.server.Hosts[0].Host // a listener of the Gateway API has one host name
	return x != y && x.Matches(y)
}

// leaves reports whether requests for a host belong to a narrower listener than b.
func (p *PlannedRoutes) leaves(b boundServer, h model.Host) bool {
	return p.anyListener(func(o boundServer) bool {
		return b.sibling(o) && b.wider(o) && o.server.Hosts[0].Host.Matches(h)
	})
}

// holders are the listeners that need a virtual host of their name, with or without routes, and the wider ones that would
// take their requests. Without such listeners the list is empty.
func (p *PlannedRoutes) holders(h model.Host) []boundServer {
	var out []boundServer
	for _, o := range p.servers {
		if !o.server.IsListener() || o.server.Hosts[0].Host != h {
			continue
		}
		for _, list := range [][]boundServer{p.servers, p.others} {
			for _, b := range list {
				if b.sibling(o) && b.wider(o) {
					out = append(out, o, b)
				}
			}
		}
	}
	return out
}

// misdirected reports whether requests for a host belong to another listener with TLS.
func (p *PlannedRoutes) misdirected(h model.Host) bool {
	return slices.ContainsFunc(p.others, func(o boundServer) bool { return o.server.Hosts[0].Host == h })
}

func (p *PlannedRoutes) anyListener(f func(boundServer) bool) bool {
	return slices.ContainsFunc(p.servers, f) || slices.ContainsFunc(p.others, f)
}

// isolate lists, in route configurations of listeners with TLS, the other listeners: a client may send requests on a
// connection for another listener's name.
func (p *Plan) isolate() {
	for _, l := range p.Listeners {
		for _, b := range l.servers {
			if !l.tls || b.routes == "" || !b.server.IsListener() {
				continue
			}
			r := p.Routes[b.routes]
			for _, o := range l.servers {
				if o.routes != "" && o.routes != b.routes && b.sibling(o) {
					r.others = append(r.others, o)
				}
			}
		}
	}
}
