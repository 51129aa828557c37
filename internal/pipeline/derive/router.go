package derive

import (
	"maps"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/gateway"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/outbound"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// router is what a group of gateways remembers beside what all groups have.
type router struct {
	plan    *gateway.Plan
	hosts   map[unit]*gatewayHost // virtual hosts that are out
	dynamic originCounts[string]  // of these, those with hosts that Envoy resolves for each request, by route configuration
	// connections are the hosts that the routes of connections use.
	connections map[ir.ListenerKey]refs
}

// gatewayHost is a virtual host that is out.
type gatewayHost struct {
	name string // of the resource
	outbound.Uses
	from *model.Origins
}

// refs are the hosts that the routes use.
func (h *gatewayHost) refs() refs {
	if h == nil {
		return refs{}
	}
	return refs{h.Refs, h.from}
}

func newRouter() *router {
	return &router{plan: gateway.NewPlan(), hosts: map[unit]*gatewayHost{}, dynamic: originCounts[string]{}, connections: map[ir.ListenerKey]refs{}}
}

// deriveGateways plans the Gateways of the group, and marks what differs.
func (g *proxyGroup) deriveGateways(r *index.Reader) {
	was, now := g.router.plan, gateway.MakePlan(r)
	g.router.plan = now
	for k := range both(was.Listeners, now.Listeners) {
		if !was.Listeners[k].Equal(now.Listeners[k]) {
			g.mark(listenerUnit(k))
		}
	}
	for name := range both(was.Routes, now.Routes) {
		if !was.Routes[name].Equal(now.Routes[name]) {
			g.markGatewayRoutes(r.BoundTo, name)
		}
	}
	secrets := now.Secrets()
	g.refSecrets(g.fixed.gatewayTLS, secrets)
	g.fixed.gatewayTLS = secrets
	for name := range both(was.Granted, now.Granted) {
		if was.Granted[name] == now.Granted[name] {
			continue
		}
		for _, name := range []string{name, name + model.SuffixCA} {
			if g.secrets[name].Total() > 0 {
				g.mark(secretUnit(name))
			}
		}
	}
}

// deriveRouter makes routes and listeners. It comes before hosts: what routes lead to may be why a host has clusters.
func (g *proxyGroup) deriveRouter(x *index.Index) {
	g.each(x, unitGatewayHost, func(r *index.Reader, u unit) { g.deriveGatewayHost(r, u) })
	for _, u := range g.dirty.take(unitRouteConfig) {
		g.deriveGatewayRoutes(u.name)
	}
	g.each(x, unitListener, func(r *index.Reader, u unit) { g.deriveGatewayListener(r, u.listener()) })
}

// both are the keys of two maps.
func both[K comparable, V any](a, b map[K]V) map[K]V {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// markGatewayRoutes marks a route configuration with all virtual hosts that it has or may have.
func (g *proxyGroup) markGatewayRoutes(boundTo func(string) []*model.VirtualService, name string) {
	g.mark(routeConfigUnit(name))
	for u := range g.router.hosts {
		if rc, _ := u.gatewayHost(); rc == name {
			g.mark(u)
		}
	}
	if plan := g.router.plan.Routes[name]; plan != nil {
		plan.EachHost(g.Client, boundTo, func(h model.Host) { g.mark(gatewayHostUnit(name, h)) })
	}
}

// deriveGatewayHost makes the virtual host of one host at a route configuration.
func (g *proxyGroup) deriveGatewayHost(r *index.Reader, u unit) {
	routeConfig, h := u.gatewayHost()
	var now *gatewayHost
	if v, uses := gateway.VirtualHost(r, g.router.plan, routeConfig, h, g.patches.concernRoutes()); v != nil {
		now = &gatewayHost{v.ResourceName(), uses, v.Origins}
		g.out.VirtualHosts[now.name] = v
	}
	was := g.router.hosts[u]
	if was != nil && (now == nil || was.name != now.name) {
		g.out.VirtualHosts[was.name] = nil
	}
	at := outbound.DomainKey{RouteConfig: routeConfig, Domain: string(h)}
	if now == nil {
		delete(g.router.hosts, u)
		delete(g.domains, at)
	} else {
		g.router.hosts[u] = now
		g.domains[at] = []model.Host{h}
	}
	added := policy.Added(&g.Key, g.patches.now, model.PatchVirtualHost)
	if (was == nil) != (now == nil) || was != nil && !was.from.Equal(now.from) && len(added) > 0 {
		g.mark(routeConfigUnit(routeConfig))
	}
	g.replaceRefs(was.refs(), now.refs())
	g.countDynamic(routeConfig, was, -1)
	g.countDynamic(routeConfig, now, 1)
}

// countDynamic derives the listener again if the first of such virtual hosts comes, the last goes, or their origins differ.
func (g *proxyGroup) countDynamic(routeConfig string, h *gatewayHost, by int) {
	if h == nil || !h.Dynamic {
		return
	}
	first, differs := index.CountIn(g.router.dynamic, routeConfig, h.from, by)
	if p := g.router.plan.Routes[routeConfig]; p != nil && (first || differs) {
		g.mark(listenerUnit(p.Listener))
	}
}

// deriveGatewayRoutes puts a route configuration out, with virtual hosts that patches add.
func (g *proxyGroup) deriveGatewayRoutes(name string) {
	plan := g.router.plan.Routes[name]
	if plan == nil {
		g.patches.dropHosts(g.out, name)
		g.out.RouteConfigs[name] = nil
		return
	}
	from := plan.Origins()
	g.out.RouteConfigs[name] = &ir.RouteConfig{Made: ir.Made{Origins: from}, Name: name, Of: plan.Key}
	g.serveAddedHosts(plan.Key, from, true)
}

// deriveGatewayListener makes a listener of a gateway.
func (g *proxyGroup) deriveGatewayListener(r *index.Reader, k ir.ListenerKey) {
	l, uses := gateway.Listener(r, g.router.plan, k, g.router.dynamic, &g.filters)
	g.out.Listeners[k.Name()] = l
	now := refs{hosts: uses.Refs}
	if l != nil {
		now.from = l.Origins
	}
	g.replaceRefs(g.router.connections[k], now)
	if g.router.connections[k] = now; len(now.hosts) == 0 {
		delete(g.router.connections, k)
	}
}
