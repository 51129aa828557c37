package derive

import (
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/derive/outbound"
	"github.com/moonsail/moonsail/internal/pipeline/derive/policy"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// routeUses are the listeners' uses of route configurations. A route configuration exists as long as a listener uses it.
type routeUses struct {
	byListener map[ir.ListenerKey]outbound.RouteUse
	users      map[string]routeUsers // by route configuration
}

// routeUsers counts the listeners that use a route configuration.
type routeUsers struct {
	index.OriginCounts
	bound int // of those, listeners that applications connect to
}

func newRouteUses() routeUses {
	return routeUses{byListener: map[ir.ListenerKey]outbound.RouteUse{}, users: map[string]routeUsers{}}
}

// replace replaces what a listener uses, and returns what it used before. A use without a name ends it.
func (u *routeUses) replace(k ir.ListenerKey, use outbound.RouteUse) (old ir.RouteConfigKey) {
	if was, ok := u.byListener[k]; ok {
		u.count(was, -1)
		delete(u.byListener, k)
		old = was.Routes
	}
	if use.Routes.Name != "" {
		u.count(use, 1)
		u.byListener[k] = use
	}
	return old
}

func (u *routeUses) count(use outbound.RouteUse, by int) {
	users := u.users[use.Routes.Name]
	users.Count(use.From, by)
	if use.Bound {
		users.bound += by
	}
	if u.users[use.Routes.Name] = users; users.Total() == 0 {
		delete(u.users, use.Routes.Name)
	}
}

// serveRoutes makes listener k a user of a route configuration, which gets a virtual host for unknown hosts.
func (g *proxyGroup) serveRoutes(mesh *model.Mesh, k ir.ListenerKey, use outbound.RouteUse) {
	old := g.routes.replace(k, use)
	if old.Name != "" && old.Name != use.Routes.Name {
		g.serveRouteConfig(mesh, old)
	}
	if use.Routes.Name != "" {
		g.serveRouteConfig(mesh, use.Routes)
	}
}

// serveRouteConfig puts a route configuration out, with the virtual host for unknown hosts unless some host takes every
// domain.
func (g *proxyGroup) serveRouteConfig(mesh *model.Mesh, of ir.RouteConfigKey) {
	name := of.Name
	for _, host := range []string{outbound.AllowAny, outbound.BlockAll} {
		g.out.VirtualHosts[resourcename.VirtualHost(name, host)] = nil
	}
	users := g.routes.users[name]
	if users.Total() == 0 {
		g.patches.dropHosts(g.out, name)
		g.out.RouteConfigs[name] = nil
		return
	}
	made := ir.Made{Origins: users.Common()}
	g.out.RouteConfigs[name] = &ir.RouteConfig{Made: made, Name: name, Of: of}
	if g.serveAddedHosts(of, made.Origins, g.SendsPeerHeader(mesh)) || len(g.domains[outbound.DomainKey{RouteConfig: name, Domain: "*"}]) > 0 {
		return
	}
	unknown := outbound.UnknownHosts(g.Client, mesh, of, users.bound > 0)
	unknown.Origins = made.Origins.Union(g.UnknownMade().Origins)
	g.out.VirtualHosts[unknown.ResourceName()] = unknown
}

// isUnknownHosts reports whether a virtual host's name is that of the one for unknown hosts.
func isUnknownHosts(host string) bool { return host == outbound.AllowAny || host == outbound.BlockAll }

// addedHost begins the names of virtual hosts that patches add.
const addedHost = "envoyfilter~"

// isServiceHost reports whether a virtual host belongs to a host, and is not one for unknown hosts or of a patch.
func isServiceHost(name string) bool {
	return !isUnknownHosts(name) && !strings.HasPrefix(name, addedHost)
}

// patchState is what EnvoyFilters change.
type patchState struct {
	now        *ir.Patches         // in force; nil: not known yet
	naming     [][]byte            // the values of those, and the configurations of plugins, that name clusters; only with clusters on demand
	addedHosts map[string][]string // resource names of virtual hosts that patches add, by route configuration
}

// derivePatches chooses the patches that apply. What they concern is derived again if they differ from before, because
// groups do not keep resources.
func (g *proxyGroup) derivePatches(r *index.Reader) {
	was, now := g.patches.now, policy.Patches(r)
	g.noteTexts(policy.TextsNamingClusters(r))
	targets := policy.ChangedTargets(was, now)
	if len(targets) == 0 {
		return
	}
	g.patches.now, g.out.Patches = now, now
	for name := range policy.AddedClusters(&g.Key, was) {
		g.out.Clusters[name] = nil
	}
	for name, c := range policy.AddedClusters(&g.Key, now) {
		g.out.Clusters[name] = c
	}
	for name := range policy.AddedListeners(&g.Key, was) {
		g.out.Listeners[name] = nil
	}
	for name, l := range policy.AddedListeners(&g.Key, now) {
		g.out.Listeners[name] = l
	}
	g.markPatched(r.BoundTo, targets)
}

// concernRoutes reports whether patches in force change routes, or add or change virtual hosts.
func (p *patchState) concernRoutes() bool {
	return p.now != nil && slices.ContainsFunc(p.now.List, func(o ir.Patch) bool {
		return o.Target == model.PatchVirtualHost || o.Target == model.PatchHTTPRoute
	})
}

// markPatched makes dirty what patches of some targets concern.
func (g *proxyGroup) markPatched(boundTo func(string) []*model.VirtualService, targets map[model.PatchTarget]bool) {
	routes := targets[model.PatchVirtualHost] || targets[model.PatchHTTPRoute]
	clusters := targets[model.PatchCluster]
	if g.Key.Inbound {
		g.mark(unit{kind: unitInbound})
		return
	}
	g.mark(unit{kind: unitFixed})
	if routes || clusters {
		for h := range g.hosts {
			g.mark(hostUnit(h))
		}
	}
	if clusters && len(targets) == 1 {
		return
	}
	if g.router != nil && routes {
		for u := range g.router.hosts {
			g.mark(u)
		}
		for name, plan := range g.router.plan.Routes {
			plan.EachHost(g.Client, boundTo, func(h model.Host) { g.mark(gatewayHostUnit(name, h)) })
		}
	}
	if g.router != nil && (routes || targets[model.PatchRouteConfig]) {
		for name := range g.router.plan.Routes {
			g.mark(routeConfigUnit(name))
		}
	}
	g.markListeners() // those of sidecars serve the route configurations that they use
}

// serveAddedHosts puts out the virtual hosts that patches add to a route configuration, with the domains that no host has
// there. It reports whether one of them takes every host.
func (g *proxyGroup) serveAddedHosts(of ir.RouteConfigKey, from *model.Origins, hidePeer bool) (all bool) {
	g.patches.dropHosts(g.out, of.Name)
	taken := map[string]bool{}
	for _, p := range policy.Added(&g.Key, g.patches.now, model.PatchVirtualHost) {
		if !p.MatchesRoutes(g.patches.now.Gateway, of) {
			continue
		}
		v := &ir.VirtualHost{RouteConfig: of.Name, Of: of, Name: addedHost + plainName(p.Name), Added: p, RemovesPeerHeader: hidePeer}
		var made model.OriginList
		made.Add(p.Origin)
		made.AddAll(from)
		for _, d := range p.Domains {
			switch k := (outbound.DomainKey{RouteConfig: of.Name, Domain: d}); {
			case taken[d]:
			case g.isTaken(k):
				made.AddAll(g.holderOf(k.Relative()))
			default:
				taken[d] = true
				v.Domains = append(v.Domains, d)
			}
		}
		v.Origins = made.Since(0)
		name := v.ResourceName()
		if len(v.Domains) == 0 || slices.Contains(g.patches.addedHosts[of.Name], name) {
			continue
		}
		g.out.VirtualHosts[name] = v
		if g.patches.addedHosts == nil {
			g.patches.addedHosts = map[string][]string{}
		}
		g.patches.addedHosts[of.Name] = append(g.patches.addedHosts[of.Name], name)
	}
	return taken["*"]
}

// isTaken reports whether a host has a domain, which may be an absolute name.
func (g *proxyGroup) isTaken(k outbound.DomainKey) bool {
	return len(g.domains[k]) > 0 || len(g.domains[k.Relative()]) > 0
}

// dropHosts takes back the virtual hosts that patches added to a route configuration.
func (p *patchState) dropHosts(out *Delta, routeConfig string) {
	for _, name := range p.addedHosts[routeConfig] {
		out.VirtualHosts[name] = nil
	}
	delete(p.addedHosts, routeConfig)
}

// plainName is a name without the separators of parts of resource names.
func plainName(name string) string { return strings.NewReplacer("/", "_", ":", "_").Replace(name) }
