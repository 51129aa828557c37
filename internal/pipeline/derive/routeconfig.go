package derive

import (
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// routeUse is a listener's use of a route configuration.
type routeUse struct {
	routes ir.RouteConfigKey
	bound  bool           // applications connect to the listener itself
	from   *model.Origins // without which the listener would not use it
}

// routeUsers counts the listeners that use a route configuration.
type routeUsers struct {
	index.OriginCounts
	bound int
}

// useRoutes replaces what listener k uses; the empty use ends it.
func (s *proxyGroup) useRoutes(k ir.ListenerKey, use routeUse) {
	if old, ok := s.routeUses[k]; ok {
		s.countUse(old, -1)
		delete(s.routeUses, k)
	}
	if use.routes.Name != "" {
		s.countUse(use, 1)
		s.routeUses[k] = use
	}
}

func (s *proxyGroup) countUse(u routeUse, by int) {
	users := s.routeUsers[u.routes.Name]
	users.Count(u.from, by)
	countIf(u.bound, &users.bound, by)
	if s.routeUsers[u.routes.Name] = users; users.Total() == 0 {
		delete(s.routeUsers, u.routes.Name)
	}
}

// serveRouteConfig makes listener k a user of a route configuration, which gets a virtual
// host for hosts that nobody knows. A route configuration goes with its last user.
func (s *proxyGroup) serveRouteConfig(mesh *model.Mesh, k ir.ListenerKey, use routeUse) {
	old := s.routeUses[k].routes
	s.useRoutes(k, use)
	if old.Name != "" && old.Name != use.routes.Name {
		s.serveFallback(mesh, old)
	}
	if use.routes.Name != "" {
		s.serveFallback(mesh, use.routes)
	}
}

// serveFallback puts a route configuration out with the virtual host for unknown hosts,
// unless some host takes every domain, which leaves nothing over.
func (s *proxyGroup) serveFallback(mesh *model.Mesh, of ir.RouteConfigKey) {
	name := of.Name
	s.dropFallback(name)
	users := s.routeUsers[name]
	if users.Total() == 0 {
		s.dropAddedHosts(name)
		s.out.RouteConfigs[name] = nil
		return
	}
	made := ir.Made{Origins: users.Common()}
	s.out.RouteConfigs[name] = &ir.RouteConfig{Made: made, Name: name, Of: of}
	if s.serveAddedHosts(of, made.Origins, s.TellsPeer(mesh)) || len(s.domains[domainKey{name, "*"}]) > 0 {
		return
	}
	fallback := s.fallbackHost(mesh, of, users.bound > 0)
	fallback.Origins = made.Origins.Union(s.UnknownMade().Origins)
	s.out.VirtualHosts[fallback.ResourceName()] = fallback
}

func (s *proxyGroup) dropFallback(name string) {
	for _, host := range []string{allowAny, blockAll} {
		s.out.VirtualHosts[name+"/"+host] = nil
	}
}

// Names of the virtual hosts for unknown hosts, as Istio's.
const (
	allowAny = "allow_any"
	blockAll = "block_all"
)

// fallbackHost is the virtual host for unknown hosts. Where applications connect to the
// listener itself there is no original destination to pass requests on to.
func (s *proxyGroup) fallbackHost(mesh *model.Mesh, of ir.RouteConfigKey, bound bool) *ir.VirtualHost {
	v := &ir.VirtualHost{RouteConfig: of.Name, Of: of, Domains: []string{"*"}}
	cluster := s.UnknownCluster(mesh)
	if p := s.EgressProxy(); p != nil && cluster == ir.PassthroughCluster {
		cluster = ir.OutboundCluster(p.Port, p.Subset, p.Host)
		bound = false
	}
	if cluster == ir.BlackHoleCluster || bound {
		v.Name = blockAll
		v.Routes = []ir.Route{{Name: blockAll, DirectResponse: &model.DirectResponse{Status: 502}}}
		return v
	}
	v.Name, v.HidesPeer = allowAny, s.TellsPeer(mesh)
	v.Routes = []ir.Route{{Name: allowAny, Backends: []ir.Backend{{Cluster: cluster, Weight: 1}}}}
	return v
}

// diffVirtualHosts takes a host's virtual hosts into the scope. Envoy refuses a route
// configuration in which two virtual hosts have one domain, so each domain goes to
// whoever has the best claim, and hosts whose share changes are sent again.
func (s *proxyGroup) diffVirtualHosts(h model.Host, old *hostState, now *hostResult) {
	for _, name := range old.sent {
		s.out.VirtualHosts[name] = nil
	}
	if !old.holder().Equal(now.holder()) {
		for _, k := range now.domains {
			s.markLosers(k, h)
		}
	}
	if !slices.Equal(old.domains, now.domains) {
		for _, k := range old.domains {
			s.unclaim(k, h)
		}
		for _, k := range now.domains {
			s.claimDomain(k, h)
		}
	}
	for _, v := range now.vhosts {
		s.out.VirtualHosts[v.ResourceName()] = s.settleDomains(v)
	}
}

func (s *proxyGroup) unclaim(k domainKey, h model.Host) {
	list := s.domains[k]
	i := slices.Index(list, h)
	if i < 0 {
		return
	}
	if i == 0 { // the next one gets it
		s.markLosers(k, h)
	}
	s.domains[k] = slices.Delete(list, i, i+1)
	if len(s.domains[k]) == 0 {
		delete(s.domains, k)
	}
}

// markLosers marks the other hosts that want a domain: h comes to have it, or ceases to.
func (s *proxyGroup) markLosers(k domainKey, h model.Host) {
	for _, other := range s.domains[k] {
		if other != h {
			s.mark(domainsUnit(other))
		}
	}
}

// holder is what a host has its domains for.
func (h *hostState) holder() *model.Origins {
	if len(h.claims) == 0 {
		return nil
	}
	return h.claims[0].from
}

// holderOf is what the host that has a domain has it for.
func (s *proxyGroup) holderOf(k domainKey) *model.Origins {
	owners := s.domains[k]
	if len(owners) == 0 {
		return nil
	}
	if s.router != nil {
		if h := s.router.hosts[gatewayHostUnit(k.routeConfig, owners[0])]; h != nil {
			return h.from
		}
		return nil
	}
	if state := s.hosts[owners[0]]; state != nil {
		return state.holder()
	}
	return nil
}

func (s *proxyGroup) claimDomain(k domainKey, h model.Host) {
	list := s.domains[k]
	i, found := slices.BinarySearchFunc(list, h, func(a, b model.Host) int { return compareDomainClaims(k.domain, a, b) })
	if found {
		return
	}
	if i == 0 { // the first one loses it
		s.markLosers(k, h)
	}
	s.domains[k] = slices.Insert(list, i, h)
}

// resettle puts a host's virtual hosts out again with the domains that it has now. They are
// derived once more for that: only few hosts quarrel over domains, and scopes do not keep views.
func (s *proxyGroup) resettle(r *index.Reader, h model.Host) {
	if s.hosts[h] == nil {
		return
	}
	for _, v := range s.deriveHost(r, h).vhosts {
		s.out.VirtualHosts[v.ResourceName()] = s.settleDomains(v)
	}
}

// compareDomainClaims puts the host whose own name the domain is first, then the smaller name.
func compareDomainClaims(domain string, a, b model.Host) int {
	if (string(a) == domain) != (string(b) == domain) {
		if string(a) == domain {
			return -1
		}
		return 1
	}
	return strings.Compare(string(a), string(b))
}

// settleDomains leaves a virtual host the domains that it has won; nil where none is left.
func (s *proxyGroup) settleDomains(v *ir.VirtualHost) *ir.VirtualHost {
	var won []string
	var from model.OriginList
	from.AddAll(v.Origins)
	for _, d := range v.Domains {
		k := domainKey{v.RouteConfig, d}
		if owners := s.domains[k]; len(owners) > 0 && owners[0] == v.Host {
			won = append(won, d)
		} else {
			from.AddAll(s.holderOf(k))
		}
	}
	switch {
	case len(won) == 0:
		return nil
	case len(won) == len(v.Domains):
		return v
	}
	out := *v
	out.Domains, out.Origins = won, from.Since(0)
	return &out
}
