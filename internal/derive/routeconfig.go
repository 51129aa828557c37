package derive

import (
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/view"
)

// routeUse is a listener's use of a route configuration.
type routeUse struct {
	name  string
	bound bool // applications connect to the listener itself
}

// serveRouteConfig makes listener k a user of a route configuration, which gets a virtual
// host for hosts that nobody knows.
func (s *scope) serveRouteConfig(mesh *model.Mesh, k listenerKey, use routeUse) {
	if s.routeUses[k].name != use.name {
		s.dropRouteConfig(mesh, k)
	}
	if use.name == "" {
		return
	}
	s.routeUses[k] = use
	s.out.RouteConfigs[use.name] = &view.RouteConfig{Name: use.name}
	s.serveFallback(mesh, use.name)
}

// serveFallback makes the virtual host for unknown hosts, unless some host takes every
// domain, which leaves nothing over.
func (s *scope) serveFallback(mesh *model.Mesh, name string) {
	s.dropFallback(name)
	if len(s.domains[domainKey{name, "*"}]) > 0 {
		return
	}
	bound := false
	for _, u := range s.routeUses {
		bound = bound || u.name == name && u.bound
	}
	fallback := s.fallbackHost(mesh, name, bound)
	s.out.VirtualHosts[fallback.ResourceName()] = fallback
}

// dropRouteConfig ends listener k's use of its route configuration, which goes with its
// last user.
func (s *scope) dropRouteConfig(mesh *model.Mesh, k listenerKey) {
	name := s.routeUses[k].name
	delete(s.routeUses, k)
	if name == "" {
		return
	}
	for _, u := range s.routeUses {
		if u.name == name {
			s.serveFallback(mesh, name)
			return
		}
	}
	s.out.RouteConfigs[name] = nil
	s.dropFallback(name)
}

func (s *scope) dropFallback(name string) {
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
func (s *scope) fallbackHost(mesh *model.Mesh, routeConfig string, bound bool) *view.VirtualHost {
	v := &view.VirtualHost{RouteConfig: routeConfig, Domains: []string{"*"}}
	cluster := s.unknownCluster(mesh)
	if p := s.egressProxy(); p != nil && cluster == view.PassthroughCluster {
		cluster = outboundCluster(p.Port, p.Subset, p.Host)
		bound = false
	}
	if cluster == view.BlackHoleCluster || bound {
		v.Name = blockAll
		v.Routes = []view.Route{{Name: blockAll, DirectResponse: &model.DirectResponse{Status: 502}}}
		return v
	}
	v.Name = allowAny
	v.Routes = []view.Route{{Name: allowAny, Backends: []view.Backend{{Cluster: cluster, Weight: 1}}}}
	return v
}

func (s *scope) egressProxy() *model.Destination {
	if s.sidecar == nil {
		return nil
	}
	return s.sidecar.EgressProxy
}

// diffVirtualHosts takes a host's virtual hosts into the scope. Envoy refuses a route
// configuration in which two virtual hosts have one domain, so each domain goes to
// whoever has the best claim, and hosts whose share changes are sent again.
func (s *scope) diffVirtualHosts(h model.Host, old, now *hostResult) {
	again := map[string]*view.VirtualHost{}
	for _, v := range old.vhosts {
		s.out.VirtualHosts[v.ResourceName()] = nil
		for _, d := range v.Domains {
			s.unclaim(domainKey{v.RouteConfig, d}, h, again)
		}
	}
	for _, v := range now.vhosts {
		for _, d := range v.Domains {
			s.claimDomain(domainKey{v.RouteConfig, d}, h, again)
		}
	}
	for _, v := range now.vhosts {
		again[v.ResourceName()] = v
	}
	for name, v := range again {
		s.out.VirtualHosts[name] = s.settleDomains(v)
	}
}

func (s *scope) unclaim(k domainKey, h model.Host, again map[string]*view.VirtualHost) {
	rest := slices.DeleteFunc(slices.Clone(s.domains[k]), func(o model.Host) bool { return o == h })
	s.domains[k] = rest
	dropEmpty(s.domains, k)
	s.revisit(k, rest, h, again)
}

func (s *scope) claimDomain(k domainKey, h model.Host, again map[string]*view.VirtualHost) {
	if slices.Contains(s.domains[k], h) {
		return
	}
	all := append(slices.Clone(s.domains[k]), h)
	slices.SortFunc(all, func(a, b model.Host) int { return compareDomainClaims(k.domain, a, b) })
	s.domains[k] = all
	s.revisit(k, all, h, again)
}

// revisit marks the virtual hosts of others who want the domain.
func (s *scope) revisit(k domainKey, hosts []model.Host, but model.Host, again map[string]*view.VirtualHost) {
	for _, o := range hosts {
		if o == but || s.hosts[o] == nil {
			continue
		}
		for _, v := range s.hosts[o].vhosts {
			if v.RouteConfig == k.routeConfig {
				again[v.ResourceName()] = v
			}
		}
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
func (s *scope) settleDomains(v *view.VirtualHost) *view.VirtualHost {
	host := model.Host(hostOf(v))
	var won []string
	for _, d := range v.Domains {
		if owners := s.domains[domainKey{v.RouteConfig, d}]; len(owners) > 0 && owners[0] == host {
			won = append(won, d)
		}
	}
	switch {
	case len(won) == 0:
		return nil
	case len(won) == len(v.Domains):
		return v
	}
	out := *v
	out.Domains = won
	return &out
}

// hostOf is the host in a virtual host's name, "host:port".
func hostOf(v *view.VirtualHost) string {
	i := strings.LastIndexByte(v.Name, ':')
	return v.Name[:i]
}
