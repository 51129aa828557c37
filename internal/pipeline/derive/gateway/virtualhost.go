package gateway

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/outbound"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// VirtualHost makes the virtual host of one host at a route configuration, of all virtual services that are bound to its
// servers; nil: none has the host, and no listener must keep it from wider ones. uses is what its routes lead to. If
// EnvoyFilters patch routes or add virtual hosts, there are none that only answer requests for other servers: patches may be for
// their domains, and are not meant for their routes.
func VirtualHost(r *index.Reader, p *Plan, routeConfig string, h model.Host, patched bool) (v *ir.VirtualHost, uses outbound.Uses) {
	plan := p.Routes[routeConfig]
	if plan == nil {
		return nil, uses
	}
	headers := r.Headers(r.Mesh())
	out := &ir.VirtualHost{
		RouteConfig: routeConfig, Of: plan.Key, Host: h, Name: resourcename.HostPort(h, plan.servers[0].server.Port.Number),
		Domains: []string{string(h)}, IncludeAttempts: !headers.NoAttempts, ForwardHost: headers.ForwardHost,
		RemovesPeerHeader: true,
	}
	mark := r.Mark()
	if others := plan.misdirected(h); len(others) > 0 {
		r.Used.AddAll(originsOf(plan.servers))
		r.Used.AddAll(originsOf(others))
		out.Routes = []ir.Route{{DirectResponse: &model.DirectResponse{Status: misdirectedRequest}}}
		out.Made = r.MadeSince(mark)
		return out, uses
	}
	if !plan.collect(r, out, h, &uses) && (patched || !plan.answerUnrouted(r, out, h)) {
		return nil, outbound.Uses{}
	}
	out.Made = r.MadeSince(mark)
	uses.Sort()
	return out, uses
}

// collect adds the routes of all servers and what they use, and reports whether the virtual host is needed.
func (p *PlannedRoutes) collect(r *index.Reader, out *ir.VirtualHost, h model.Host, uses *outbound.Uses) (found bool) {
	if p.mixesPorts() {
		r.Used.AddAll(originsOf(p.servers))
	}
	listeners := p.listeners()
	var seen []seenRoutes
	var byHost []hostRoutes
	for _, b := range p.servers {
		if b.leaves(h, listeners) {
			continue
		}
		list := boundTo(r, b, h)
		redirects := b.server.HTTPSRedirect && (len(list) > 0 || hasHost(b.server, h))
		if len(list) > 0 || redirects {
			r.Used.AddAll(b.from)
		}
		if redirects {
			out.RequireTLS, found = true, true
		}
		for _, bound := range list {
			if found = true; slices.Contains(seen, seenRoutes{b.root, bound.Key}) {
				continue
			}
			seen = append(seen, seenRoutes{b.root, bound.Key})
			r.Use(bound)
			rt := &outbound.Routing{Reader: r, Host: h, Port: serverPort(b.server), Uses: uses, Gateway: b.gateways[0]}
			routes := rt.Routes(bound)
			byHost = append(byHost, hostRoutes{bound.HostnameFor(h), routes})
			out.Routes = append(out.Routes, routes...)
			out.RemovesPeerHeader = !r.SendsPeerHeader(r.Mesh()) || !rt.AllOfMesh(out.Routes)
		}
	}
	if slices.ContainsFunc(seen, func(o seenRoutes) bool {
		return o.service.Kind.IsKubernetesRoute() || o.service.Kind == model.KindIngress
	}) {
		out.Routes = byPrecedence(byHost)
	}
	out.Routes = outbound.CatchAllLast(out.Routes)
	if holders := holders(h, listeners); !found && len(holders) > 0 {
		r.Used.AddAll(originsOf(holders))
		found = true
	}
	return found
}

// hostRoutes are the routes of a virtual service, with its hostname that matches the virtual host.
type hostRoutes struct {
	hostname model.Host
	routes   []ir.Route
}

// byPrecedence orders routes of several objects as the Gateway API does: by hostnames, those of one hostname by their matches.
func byPrecedence(list []hostRoutes) []ir.Route {
	slices.SortStableFunc(list, func(a, b hostRoutes) int { return a.hostname.CompareSpecificity(b.hostname) })
	var out []ir.Route
	for len(list) > 0 {
		n := 0
		var same []ir.Route
		for n < len(list) && list[n].hostname == list[0].hostname {
			same = append(same, list[n].routes...)
			n++
		}
		out, list = append(out, outbound.BySpecificity(same)...), list[n:]
		if n := len(out); n > 0 && outbound.IsCatchAll(out[n-1]) {
			break
		}
	}
	return out
}

// mixesPorts reports whether the servers are of several ports: names of virtual hosts have the port of the first server.
func (p *PlannedRoutes) mixesPorts() bool {
	return slices.ContainsFunc(p.servers, func(b boundServer) bool { return b.server.Port.Number != p.servers[0].server.Port.Number })
}

// seenRoutes are those of a virtual service, which may be bound to several servers of a gateway.
type seenRoutes struct {
	gateway string
	service model.Key
}

func serverPort(server *model.GatewayServer) *model.ServicePort {
	return &model.ServicePort{Number: server.Port.Number, Name: server.Port.Name, Protocol: server.Port.Protocol}
}

func hasHost(server *model.GatewayServer, h model.Host) bool {
	return slices.ContainsFunc(server.Hosts, func(sel model.HostSelector) bool { return sel.Host == h })
}

// boundTo lists the virtual services that are bound to a server and have host h there, by rank, in each the oldest first.
// It records no fact: changes of virtual services mark what they concern (see Plan.Concerns).
func boundTo(r *index.Reader, b boundServer, h model.Host) []*model.VirtualService {
	var out []*model.VirtualService
	for _, c := range h.Covering() {
		for _, v := range r.BoundAt(b.gateways, c) {
			if v.Visibility.Sees(r.Key.Namespace) && !slices.Contains(out, v) && slices.Contains(b.server.AttachBound(v).Hosts, h) {
				out = append(out, v)
			}
		}
	}
	sortByRank(r.Client, out)
	return out
}
