package gateway

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/outbound"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Listeners of one Gateway of the Gateway API and its ListenerSets that share a port are isolated. A request, and a connection
// with TLS, belongs to the listener with the narrowest matching hostname, even if none of its routes matches, or if it is not
// served. Servers of Istio's Gateways are not isolated (see neighbors.go).
//
// Envoy chooses the narrowest virtual host, and the filter chain with the narrowest server name. Each virtual host and each
// chain therefore has the routes of the narrowest listener for it. A listener without a virtual host or chain of its hostname
// has one without routes, if otherwise a wider one would take what is for it. Listeners that end TLS have a route
// configuration each; requests for another listener get status 421, so that clients use another connection.

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

// leaves reports whether the list has a narrower listener than b for a host.
func (b boundServer) leaves(h model.Host, list []boundServer) bool {
	return slices.ContainsFunc(list, func(o boundServer) bool {
		return b.sibling(o) && b.wider(o) && o.server.Hosts[0].Host.Matches(h)
	})
}

// widerIn lists those of the list that are wider than b.
func (b boundServer) widerIn(list []boundServer) []boundServer {
	var out []boundServer
	for _, o := range list {
		if o.sibling(b) && o.wider(b) {
			out = append(out, o)
		}
	}
	return out
}

// listeners are all that requests may belong to, with routes here or without.
func (p *PlannedRoutes) listeners() []boundServer { return slices.Concat(p.servers, p.others) }

// holders are the listeners of the list that need a virtual host of their name, with or without routes, and the wider ones
// that would take their requests. Without such listeners the result is empty.
func holders(h model.Host, list []boundServer) []boundServer {
	var out []boundServer
	for _, o := range list {
		if !o.server.IsListener() || o.server.Hosts[0].Host != h {
			continue
		}
		if wider := o.widerIn(list); len(wider) > 0 {
			out = append(append(out, o), wider...)
		}
	}
	return out
}

// misdirected lists the other listeners with TLS that requests for a host belong to.
func (p *PlannedRoutes) misdirected(h model.Host) []boundServer {
	var out []boundServer
	for _, o := range p.others {
		if o.server.TLS != nil && o.server.Hosts[0].Host == h {
			out = append(out, o)
		}
	}
	return out
}

// listeners are all that connections may belong to, served or not.
func (p *PlannedListener) listeners() []boundServer { return slices.Concat(p.servers, p.unserved) }

// closing makes the chains of hostnames whose connections a wider listener would take. They close connections, and are for
// listeners that have no chain of their hostname.
func (m *maker) closing(p *PlannedListener) []ir.FilterChain {
	var out []ir.FilterChain
	for _, o := range p.listeners() {
		if o.routes == "" && len(o.widerIn(p.servers)) > 0 {
			m.Used.AddAll(o.from)
			match := ir.ChainMatch{ServerNames: outbound.ServerNames(hostsOf(o.server))}
			out = append(out, ir.FilterChain{Match: match, TCP: policy.Refusal()})
		}
	}
	return out
}

// isolate adds the listeners that are not served to the listeners of their ports, if these have listeners of the same
// Gateway. It adds to route configurations the other listeners that requests there may belong to: a client may send requests
// on a connection for another listener's name.
func (p *Plan) isolate(unserved map[ir.ListenerKey][]boundServer) {
	for k, l := range p.Listeners {
		for _, o := range unserved[k] {
			if l.tls == (o.server.TLS != nil) && slices.ContainsFunc(l.servers, o.sibling) {
				l.unserved = append(l.unserved, o)
			}
		}
		if !l.tls && l.routeConfig != "" {
			p.Routes[l.routeConfig].others = l.unserved
		}
		for _, b := range l.servers {
			if l.tls && b.routes != "" {
				r := p.Routes[b.routes]
				r.others = append(append(r.others, b.others(l.servers)...), b.others(l.unserved)...)
			}
		}
	}
}

// others are the listeners of the same Gateway that do not share the route configuration.
func (b boundServer) others(list []boundServer) []boundServer {
	var out []boundServer
	for _, o := range list {
		if o.routes != b.routes && b.sibling(o) {
			out = append(out, o)
		}
	}
	return out
}
