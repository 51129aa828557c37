package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Routers have one scope: a gateway calls others, and nobody's application is behind it. What it
// listens for comes from Gateways, and where calls go from VirtualServices that are bound to
// them; Sidecars are not for routers, as in Istio.

// routerKeys are a router's scopes. Gateways and policies select by any of its labels, so that all
// of them count; replicas have the same.
func (x *Index) routerKeys(p *model.Proxy, base GroupKey) (outbound, none GroupKey) {
	outbound = base
	outbound.Interception = ""
	outbound.Labels = canonicalLabels(p.Labels)
	outbound.Ports = canonicalPorts(p.NamedPorts)
	outbound.Topology = p.Topology
	if p.Verified {
		outbound.Account = p.ServiceAccount
	}
	if at := addressOf(p); len(x.endpoints.at.services[at]) > 0 {
		outbound.IP = at.name
	}
	x.localityUsage.locate(&outbound, x.endpoints, p)
	return outbound, GroupKey{Names: true, Inbound: true}
}

// router is what the scope of routers remembers beside what all have.
type router struct {
	plan    *gatewayPlan
	hosts   map[unit]*gatewayHost    // virtual hosts that are out
	dynamic map[string]*originCounts // of these, by route configuration: that lead to hosts found by the request
	secrets []secretRef              // that servers ask for
}

func newRouter() *router {
	return &router{plan: newGatewayPlan(), hosts: map[unit]*gatewayHost{}, dynamic: map[string]*originCounts{}}
}

// bound are the virtual services of gateways, by host.
type bound map[string]map[model.Host][]*model.VirtualService

func (b bound) replace(old, now *model.VirtualService, touched *touched) {
	if old != nil {
		b.each(old, func(of map[model.Host][]*model.VirtualService, h model.Host) { unlist(of, h, old) }, touched)
	}
	if now != nil {
		b.each(now, func(of map[model.Host][]*model.VirtualService, h model.Host) { enlist(of, h, now) }, touched)
	}
}

// each calls f for each gateway and host of a virtual service.
func (b bound) each(v *model.VirtualService, f func(map[model.Host][]*model.VirtualService, model.Host), touched *touched) {
	found := false
	for _, g := range v.Gateways {
		if g == model.GatewayMesh {
			continue
		}
		found = true
		if b[g] == nil {
			b[g] = map[model.Host][]*model.VirtualService{}
		}
		for _, h := range v.Hosts {
			f(b[g], h)
		}
		if len(b[g]) == 0 {
			delete(b, g)
		}
	}
	if found {
		touched.bound = append(touched.bound, v)
	}
}

// deriveReachable makes the clusters of a service that a router may call.
func (s *proxyGroup) deriveReachable(r *reader, svc *model.Service) *hostResult {
	if svc == nil || !s.sees(svc) && s.refs[svc.Hostname].total() == 0 {
		return nil
	}
	out := &hostResult{hostState: hostState{service: svc}}
	if r.aliased(svc) == nil || s.refs[svc.Hostname].total() > 0 { // else routes lead to what it stands for
		s.deriveClusters(r, svc, out)
	}
	return out.finish()
}

// deriveGateways joins the Gateways that select the scope's routers, and marks what differs.
func (s *proxyGroup) deriveGateways(r *reader) {
	now := newGatewayPlan()
	target := s.targetPorts(r)
	list := appendPolicies[*model.Gateway](nil, r, model.KindGateway, "", s.labels)
	for _, g := range appendPolicies(list, r, model.KindKubernetesGateway, "", s.labels) {
		if g.OwnNamespace && g.Namespace != s.Key.Namespace {
			continue
		}
		for i := range g.Servers {
			mark := r.mark()
			r.use(g)
			if server := s.resolveServer(r, now, g, &g.Servers[i]); server != nil {
				s.planServer(r, mark, now, g, server, target)
			}
			r.unread(mark)
		}
	}
	now.isolate()
	was := s.router.plan
	s.router.plan = now
	s.markGateways(r.index, was, now)
	s.replaceServerSecrets(now.secrets())
	s.markGranted(was, now)
}

// targetPorts are the ports that routers listen on, by those of their services: of several
// services the oldest's say counts, as in Istio.
func (s *proxyGroup) targetPorts(r *reader) map[uint32]targetedPort {
	out := map[uint32]targetedPort{}
	add := func(from *model.Origins, port, target uint32) {
		if out[port].number == 0 {
			out[port] = targetedPort{target, from}
		}
	}
	for _, svc := range r.selecting(s.Key.Namespace, s.labels) {
		for i := range svc.Ports {
			if number, ok := targetPort(svc.Ports[i], s.namedPorts()); ok && translatesPorts(svc) {
				add(model.OriginsOf(svc.Key), svc.Ports[i].Number, number)
			}
		}
	}
	for _, svc := range r.at(s.Key.Namespace, s.Key.IP) {
		for i := range svc.Ports {
			if number, ok := r.portAt(svc, s.Key.IP, &svc.Ports[i]); ok && translatesPorts(svc) {
				add(r.originsAt(svc, s.Key.IP), svc.Ports[i].Number, number)
			}
		}
	}
	return out
}

// targetedPort is where a Service leads a port of a Gateway.
type targetedPort struct {
	number uint32
	from   *model.Origins
}

// translatesPorts: a label has the ports of Gateways be those of the routers themselves.
func translatesPorts(svc *model.Service) bool {
	_, off := svc.Labels["experimental.istio.io/disable-gateway-port-translation"]
	return !off
}

// markGateways marks what the difference of two plans concerns.
func (s *proxyGroup) markGateways(x *Index, was, now *gatewayPlan) {
	for k := range both(was.listeners, now.listeners) {
		if !was.listeners[k].equal(now.listeners[k]) {
			s.mark(listenerUnit(k))
		}
	}
	for name := range both(was.routes, now.routes) {
		if !was.routes[name].equal(now.routes[name]) {
			s.markGatewayRoutes(x, name)
		}
	}
}

// both are the keys of two maps.
func both[K comparable, V, W any](a map[K]V, b map[K]W) map[K]bool {
	out := make(map[K]bool, len(a)+len(b))
	for k := range a {
		out[k] = true
	}
	for k := range b {
		out[k] = true
	}
	return out
}

// markGatewayRoutes marks a route configuration with all virtual hosts that it has or may have.
func (s *proxyGroup) markGatewayRoutes(x *Index, name string) {
	s.mark(unit{kind: unitRouteConfig, name: name})
	for u := range s.router.hosts {
		if rc, _ := u.gatewayHost(); rc == name {
			s.mark(u)
		}
	}
	plan := s.router.plan.routes[name]
	if plan == nil {
		return
	}
	for _, o := range plan.others {
		s.mark(gatewayHostUnit(name, o.server.Hosts[0].Host))
	}
	for _, b := range plan.servers {
		if b.server.HTTPSRedirect || b.isolated() {
			for _, h := range b.server.Hosts {
				s.mark(gatewayHostUnit(name, h.Host))
			}
		}
		for _, gateway := range b.gateways {
			for _, list := range x.bound[gateway] {
				for _, v := range list {
					s.markBound(name, b, v)
				}
			}
		}
	}
}

// markBound marks the virtual hosts that a virtual service has at a server.
func (s *proxyGroup) markBound(routeConfig string, b boundServer, v *model.VirtualService) {
	if !v.Visibility.Sees(s.Key.Namespace) {
		return
	}
	for _, h := range model.CommonHosts(b.server.HostsFor(v.Namespace), v.Hosts) {
		s.mark(gatewayHostUnit(routeConfig, h))
	}
}

// touchBound marks what a change of a virtual service concerns.
func (s *proxyGroup) touchBound(v *model.VirtualService) {
	for name, p := range s.router.plan.routes {
		for _, b := range p.servers {
			if b.isBound(v) {
				s.markBound(name, b, v)
			}
		}
	}
	if len(v.TCP)+len(v.TLS) == 0 {
		return
	}
	for k, p := range s.router.plan.listeners {
		if slices.ContainsFunc(p.servers, func(b boundServer) bool { return b.isBound(v) && !b.server.IsHTTP() }) {
			s.mark(listenerUnit(k))
		}
	}
}

// replaceServerSecrets counts the secrets that servers ask for, as those of hosts' clusters.
func (s *proxyGroup) replaceServerSecrets(now []secretRef) {
	was := s.router.secrets
	s.router.secrets = now
	s.refSecrets(was, now)
}

// markListeners marks all listeners but those that every scope has.
func (s *proxyGroup) markListeners() {
	for k := range s.listeners {
		s.mark(listenerUnit(k))
	}
	if s.router != nil {
		for k := range s.router.plan.listeners {
			s.mark(listenerUnit(k))
		}
	}
}

// markRouterRoutes marks the virtual hosts that are out, and their route configurations.
func (s *proxyGroup) markRouterRoutes() {
	for u := range s.router.hosts {
		s.mark(u)
	}
	for name := range s.router.plan.routes {
		s.mark(unit{kind: unitRouteConfig, name: name})
	}
}

// markRouter marks all that is a router's alone.
func (s *proxyGroup) markRouter(x *Index) {
	if s.router == nil {
		return
	}
	s.mark(unit{kind: unitGateways})
	for name := range s.router.plan.routes {
		s.markGatewayRoutes(x, name)
	}
}

// deriveRouter derives virtual hosts, and then the route configurations that have them.
func (s *proxyGroup) deriveRouter(x *Index) {
	s.each(x, unitGatewayHost, func(r *reader, u unit) { s.deriveGatewayHost(r, u) })
	for _, u := range s.takeDirty(unitRouteConfig) {
		s.deriveRouteConfig(u.name)
	}
}

// deriveRouteConfig puts a router's route configuration out, with virtual hosts that patches add.
func (s *proxyGroup) deriveRouteConfig(name string) {
	plan := s.router.plan.routes[name]
	if plan == nil {
		s.dropAddedHosts(name)
		s.out.RouteConfigs[name] = nil
		return
	}
	from := originsOf(plan.servers)
	s.out.RouteConfigs[name] = &ir.RouteConfig{Made: ir.Made{Origins: from}, Name: name, Of: plan.key}
	s.serveAddedHosts(plan.key, from, true)
}
