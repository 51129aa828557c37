package derive

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// router is what the scope of routers remembers beside what all have.
type router struct {
	plan    *gatewayPlan
	hosts   map[unit]*gatewayHost          // virtual hosts that are out
	dynamic map[string]*index.OriginCounts // of these, by route configuration: that lead to hosts found by the request
	secrets []secretRef                    // that servers ask for
}

func newRouter() *router {
	return &router{plan: newGatewayPlan(), hosts: map[unit]*gatewayHost{}, dynamic: map[string]*index.OriginCounts{}}
}

// deriveReachable makes the clusters of a service that a router may call.
func (s *proxyGroup) deriveReachable(r *index.Reader, svc *model.Service) *hostResult {
	if svc == nil || !s.Sees(svc) && s.refs[svc.Hostname].Total() == 0 {
		return nil
	}
	out := &hostResult{hostState: hostState{service: svc}}
	if r.Aliased(svc) == nil || s.refs[svc.Hostname].Total() > 0 { // else routes lead to what it stands for
		s.deriveClusters(r, svc, out)
	}
	return out.finish()
}

// deriveGateways joins the Gateways that select the scope's routers, and marks what differs.
func (s *proxyGroup) deriveGateways(r *index.Reader) {
	now := newGatewayPlan()
	target := s.targetPorts(r)
	for _, g := range r.Gateways() {
		if g.OwnNamespace && g.Namespace != s.Key.Namespace {
			continue
		}
		for i := range g.Servers {
			mark := r.Mark()
			r.Use(g)
			if server := s.resolveServer(r, now, g, &g.Servers[i]); server != nil {
				s.planServer(r, mark, now, g, server, target)
			}
			r.Unread(mark)
		}
	}
	now.isolate()
	was := s.router.plan
	s.router.plan = now
	s.markGateways(r, was, now)
	s.replaceServerSecrets(now.secrets())
	s.markGranted(was, now)
}

// targetPorts are the ports that routers listen on, by those of their services: of several
// services the oldest's say counts, as in Istio.
func (s *proxyGroup) targetPorts(r *index.Reader) map[uint32]targetedPort {
	out := map[uint32]targetedPort{}
	add := func(from *model.Origins, port, target uint32) {
		if out[port].number == 0 {
			out[port] = targetedPort{target, from}
		}
	}
	for _, svc := range r.Selecting() {
		for i := range svc.Ports {
			if number, ok := index.TargetPort(svc.Ports[i], s.NamedPorts()); ok && translatesPorts(svc) {
				add(model.OriginsOf(svc.Key), svc.Ports[i].Number, number)
			}
		}
	}
	for _, svc := range r.ServicesAt() {
		for i := range svc.Ports {
			if number, ok := r.PortAt(svc, s.Key.IP, &svc.Ports[i]); ok && translatesPorts(svc) {
				add(r.OriginsAt(svc, s.Key.IP), svc.Ports[i].Number, number)
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

// boundServices finds the virtual services that are bound to a gateway.
type boundServices interface {
	BoundTo(gateway string) []*model.VirtualService
}

// markGateways marks what the difference of two plans concerns.
func (s *proxyGroup) markGateways(x boundServices, was, now *gatewayPlan) {
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
func (s *proxyGroup) markGatewayRoutes(x boundServices, name string) {
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
			for _, v := range x.BoundTo(gateway) {
				s.markBound(name, b, v)
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
func (s *proxyGroup) markRouter(x *index.Index) {
	if s.router == nil {
		return
	}
	s.mark(unit{kind: unitGateways})
	for name := range s.router.plan.routes {
		s.markGatewayRoutes(x, name)
	}
}

// deriveRouter derives virtual hosts, and then the route configurations that have them.
func (s *proxyGroup) deriveRouter(x *index.Index) {
	s.each(x, unitGatewayHost, func(r *index.Reader, u unit) { s.deriveGatewayHost(r, u) })
	for _, u := range s.dirty.take(unitRouteConfig) {
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
