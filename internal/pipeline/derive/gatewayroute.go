package derive

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// gatewayHost is a virtual host of a router that is out.
type gatewayHost struct {
	name    string // of the resource
	dynamic bool   // a route leads to a host that Envoy resolves by the request
	from    *model.Origins
}

func gatewayHostUnit(routeConfig string, h model.Host) unit {
	return unit{kind: unitGatewayHost, name: routeConfig + "/" + string(h)}
}

func (u unit) gatewayHost() (routeConfig string, h model.Host) {
	rc, host, _ := strings.Cut(u.name, "/")
	return rc, model.Host(host)
}

// deriveGatewayHost makes the virtual host of one host at a route configuration, of all virtual
// services that are bound to its servers.
func (s *proxyGroup) deriveGatewayHost(r *index.Reader, u unit) {
	routeConfig, h := u.gatewayHost()
	var now *gatewayHost
	if v, dynamic := s.gatewayVirtualHost(r, routeConfig, h); v != nil {
		now = &gatewayHost{v.ResourceName(), dynamic, v.Origins}
		s.out.VirtualHosts[now.name] = v
	}
	was := s.router.hosts[u]
	if was != nil && (now == nil || was.name != now.name) {
		s.out.VirtualHosts[was.name] = nil
	}
	at := domainKey{routeConfig, string(h)}
	if now == nil {
		delete(s.router.hosts, u)
		delete(s.domains, at)
	} else {
		s.router.hosts[u] = now
		s.domains[at] = []model.Host{h}
	}
	if (was == nil) != (now == nil) || was != nil && !was.from.Equal(now.from) && len(s.added(s.patches, model.PatchVirtualHost)) > 0 {
		s.mark(unit{kind: unitRouteConfig, name: routeConfig})
	}
	s.countDynamic(routeConfig, was, -1)
	s.countDynamic(routeConfig, now, 1)
}

// countDynamic derives the listener again where the first of such routes comes or the last goes.
func (s *proxyGroup) countDynamic(routeConfig string, h *gatewayHost, by int) {
	if h == nil || !h.dynamic {
		return
	}
	first, differs := index.CountIn(s.router.dynamic, routeConfig, h.from, by)
	if p := s.router.plan.routes[routeConfig]; p != nil && (first || differs) {
		s.mark(listenerUnit(p.listener))
	}
}

// useDynamic notes what leads to hosts that Envoy resolves by the request.
func (s *proxyGroup) useDynamic(r *index.Reader, routeConfig string) {
	r.Used.AddAll(s.router.dynamic[routeConfig].Common())
}

// gatewayVirtualHost is nil where nobody is bound who has the host, and none has to keep it from wider ones.
func (s *proxyGroup) gatewayVirtualHost(r *index.Reader, routeConfig string, h model.Host) (v *ir.VirtualHost, dynamic bool) {
	plan := s.router.plan.routes[routeConfig]
	if plan == nil {
		return nil, false
	}
	headers := s.Headers(r.Mesh())
	out := &ir.VirtualHost{
		RouteConfig: routeConfig, Of: plan.key, Host: h, Name: fmt.Sprintf("%s:%d", h, plan.servers[0].server.Port.Number),
		Domains: []string{string(h)}, IncludeAttempts: !headers.NoAttempts, ForwardHost: headers.ForwardHost,
		HidesPeer: true,
	}
	mark := r.Mark()
	defer func() {
		if v != nil {
			v.Made = r.MadeSince(mark)
		}
	}()
	if plan.misdirected(h) {
		r.Used.AddAll(originsOf(plan.others))
		out.Routes = []ir.Route{{DirectResponse: &model.DirectResponse{Status: misdirectedRequest}}}
		return out, false
	}
	found, took := plan.holds(h), &hostResult{}
	if found || plan.mixesPorts() {
		r.Used.AddAll(originsOf(plan.servers))
	}
	var seen []seenRoutes
	for _, b := range plan.servers {
		if plan.leaves(b, h) {
			continue
		}
		list := s.boundTo(r, b, h)
		if len(list) > 0 || hasHost(b.server, h) {
			r.Used.AddAll(b.from)
		}
		if b.server.HTTPSRedirect && (len(list) > 0 || hasHost(b.server, h)) {
			out.RequireTLS, found = true, true
		}
		for _, bound := range list {
			if found = true; slices.Contains(seen, seenRoutes{b.gateways[0], bound.Key}) {
				continue
			}
			seen = append(seen, seenRoutes{b.gateways[0], bound.Key})
			r.Use(bound)
			rt := &routing{Reader: r, s: s, host: h, port: serverPort(b.server), out: took, gateway: b.gateways[0]}
			out.Routes = append(out.Routes, rt.fromVirtualService(bound)...)
			out.HidesPeer = !s.TellsPeer(r.Mesh()) || !rt.allOfMesh(out.Routes)
		}
	}
	if !found {
		return nil, false
	}
	if slices.ContainsFunc(seen, func(o seenRoutes) bool { return o.service.Kind.IsKubernetesRoute() }) {
		slices.SortStableFunc(out.Routes, moreSpecific)
	}
	out.Routes = catchAllLast(out.Routes)
	return out, took.dynamic
}

// mixesPorts reports whether the servers are of several ports: the first one's is in the names of virtual hosts.
func (p *plannedRoutes) mixesPorts() bool {
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

// boundTo lists the virtual services that are bound to a server and have host h there, by rank; in each
// the oldest first. Changes of them mark what they concern, so that no fact is noted.
func (s *proxyGroup) boundTo(r *index.Reader, b boundServer, h model.Host) []*model.VirtualService {
	var out []*model.VirtualService
	for _, c := range h.Covering() {
		for _, v := range r.BoundAt(b.gateways, c) {
			if v.Visibility.Sees(s.Key.Namespace) && !slices.Contains(out, v) && slices.Contains(attachBound(b.server, v).Hosts, h) {
				out = append(out, v)
			}
		}
	}
	slices.SortFunc(out, func(x, y *model.VirtualService) int {
		return cmp.Or(cmp.Compare(s.Rank(x), s.Rank(y)), model.CompareAge(x, y))
	})
	return out
}

// catchAllLast puts routes for everything behind those of other virtual services, and drops what
// comes after the first of them.
func catchAllLast(list []ir.Route) []ir.Route {
	out := slices.DeleteFunc(slices.Clone(list), func(r ir.Route) bool { return r.Match == nil })
	if i := slices.IndexFunc(list, func(r ir.Route) bool { return r.Match == nil }); i >= 0 {
		out = append(out, list[i])
	}
	return out
}

// moreSpecific orders routes as the Gateway API does; those that are alike stay in the order of their
// objects' age.
func moreSpecific(a, b ir.Route) int { return specificity(a.Match).Compare(specificity(b.Match)) }

func specificity(m *ir.Match) model.Specificity {
	if m == nil {
		return model.Specificity{}
	}
	return model.SpecificityOf(m.URI, m.Method, m.Headers, m.QueryParams)
}
