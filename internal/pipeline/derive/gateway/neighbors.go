package gateway

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Clients reuse a connection with HTTP/2 for other hosts of its certificate. So a request for a host of one server may come on
// the connection of another one, which has no routes for it. Servers with TLS that share a port therefore answer such requests
// with status 421: clients repeat them on another connection. This holds for hosts that a server does not have, and for those
// that another server has in a narrower form. Whatever has a route is served, also if another server has the host: proxies
// before the gateway may send all requests on one connection.

// anyHost is the wildcard for every host.
const anyHost model.Host = "*"

// meetNeighbors finds the other servers with TLS at the ports of servers that are no listeners of the Gateway API.
func (p *Plan) meetNeighbors() {
	for _, l := range p.Listeners {
		if !l.tls || len(l.servers) < 2 {
			continue
		}
		for _, b := range l.servers {
			if b.routes != "" && !b.server.IsListener() {
				p.Routes[b.routes].meet(b, l.servers)
			}
		}
	}
}

// meet records the other servers of the port.
func (p *PlannedRoutes) meet(b boundServer, list []boundServer) {
	other := func(o boundServer) bool { return o.routes != b.routes }
	i := slices.IndexFunc(list, other)
	if i < 0 {
		return
	}
	p.shared = true
	if !slices.ContainsFunc(list[i:], func(o boundServer) bool { return other(o) && o.root != list[i].root }) {
		p.neighbor = list[i].from
	}
	var wide []model.Host
	for _, h := range b.server.AllHosts() {
		if h.IsWildcard() {
			wide = append(wide, h)
		}
	}
	if len(wide) == 0 {
		return
	}
	for _, o := range list {
		for _, h := range o.server.AllHosts() {
			if other(o) && !hasHost(b.server, h) && slices.ContainsFunc(wide, func(w model.Host) bool { return w.Matches(h) }) {
				if p.narrower == nil {
					p.narrower = map[model.Host]*model.Origins{}
				}
				p.narrower[h] = p.narrower[h].Union(o.from)
			}
		}
	}
}

// has reports whether a server has the host itself.
func (p *PlannedRoutes) has(h model.Host) bool {
	return slices.ContainsFunc(p.servers, func(b boundServer) bool { return hasHost(b.server, h) })
}

// answerUnrouted completes the virtual host of a host without routes, and reports whether it is needed: with status 421 for
// other servers' hosts, and without routes for hosts of this one, which otherwise get 421, too.
func (p *PlannedRoutes) answerUnrouted(r *index.Reader, out *ir.VirtualHost, h model.Host) bool {
	if !p.shared {
		return false
	}
	from, narrower := p.narrower[h]
	switch {
	case narrower && !p.routesWider(r, h), h == anyHost && !p.has(h):
		out.Routes = []ir.Route{{DirectResponse: &model.DirectResponse{Status: misdirectedRequest}}}
	case narrower || p.has(anyHost) || !p.has(h):
		return false
	}
	r.Used.AddAll(originsOf(p.servers))
	r.Used.AddAll(p.neighbor)
	r.Used.AddAll(from)
	return true
}

// routesWider reports whether a virtual service has routes for a host that includes h.
func (p *PlannedRoutes) routesWider(r *index.Reader, h model.Host) bool {
	for _, b := range p.servers {
		for _, wider := range h.Covering() {
			if len(boundTo(r, b, wider)) > 0 {
				return true
			}
		}
	}
	return false
}

// eachUnrouted calls f for each host that may need a virtual host without routes of a virtual service.
func (p *PlannedRoutes) eachUnrouted(f func(model.Host)) {
	if !p.shared {
		return
	}
	f(anyHost)
	for _, b := range p.servers {
		for _, h := range b.server.Hosts {
			f(h.Host)
		}
	}
	for h := range p.narrower {
		f(h)
	}
}

// eachNarrower calls f for each narrower host that h includes.
func (p *PlannedRoutes) eachNarrower(h model.Host, f func(model.Host)) {
	for narrower := range p.narrower {
		if h != narrower && h.Matches(narrower) {
			f(narrower)
		}
	}
}
