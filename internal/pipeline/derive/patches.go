package derive

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// derivePatches chooses the patches that count in the scope. What they concern is derived
// again where they are others than before: views are not kept.
func (s *proxyGroup) derivePatches(r *index.Reader) {
	now := &ir.Patches{Gateway: s.Key.Type == model.ProxyRouter}
	metadata := index.ParseLabels(s.Key.Metadata)
	for _, f := range s.envoyFilters(r) {
		for i := range f.Patches {
			if p := &f.Patches[i]; p.Target != model.PatchBootstrap && s.inContext(p.Context) && p.MeetsProxy(s.Key.Version, metadata) {
				now.List = append(now.List, ir.Patch{EnvoyPatch: p, Origin: f.Key})
			}
		}
	}
	targets := differing(s.patches, now)
	if len(targets) == 0 {
		return
	}
	was := s.patches
	s.patches, s.out.Patches = now, now
	s.replaceAdded(was, now)
	s.markPatched(targets)
}

// envoyFilters are those that select the scope's workloads: by priority, then those of the
// root namespace first, then the older.
func (s *proxyGroup) envoyFilters(r *index.Reader) []*model.EnvoyFilter {
	list := index.Policies[*model.EnvoyFilter](r, model.KindEnvoyFilter)
	slices.SortStableFunc(list, func(a, b *model.EnvoyFilter) int { return cmp.Compare(a.Priority, b.Priority) })
	return list
}

// inContext tells whether patches of a context count in the scope.
func (s *proxyGroup) inContext(c model.PatchContext) bool {
	switch {
	case c == model.PatchAnywhere:
		return true
	case s.Key.Inbound:
		return c == model.PatchInbound && s.Key.Type == model.ProxySidecar
	case s.Key.Type == model.ProxyRouter:
		return c == model.PatchGateway
	}
	return c == model.PatchOutbound
}

// differing are the targets that two lists of patches have other patches for.
func differing(a, b *ir.Patches) map[model.PatchTarget]bool {
	byTarget := func(v *ir.Patches) map[model.PatchTarget][]ir.Patch {
		out := map[model.PatchTarget][]ir.Patch{}
		if v != nil {
			for _, p := range v.List {
				out[p.Target] = append(out[p.Target], p)
			}
		}
		return out
	}
	was, is, out := byTarget(a), byTarget(b), map[model.PatchTarget]bool{}
	for _, m := range []map[model.PatchTarget][]ir.Patch{was, is} {
		for t := range m {
			if !reflect.DeepEqual(was[t], is[t]) {
				out[t] = true
			}
		}
	}
	return out
}

// markPatched makes dirty what patches of some targets concern.
func (s *proxyGroup) markPatched(targets map[model.PatchTarget]bool) {
	routes := targets[model.PatchVirtualHost] || targets[model.PatchHTTPRoute]
	clusters := targets[model.PatchCluster]
	if s.Key.Inbound {
		s.mark(unit{kind: unitInbound})
		return
	}
	s.mark(unit{kind: unitFixed})
	if routes || clusters {
		for h := range s.hosts {
			s.mark(hostUnit(h))
		}
	}
	if clusters && len(targets) == 1 {
		return
	}
	if s.router != nil && routes {
		s.markRouterRoutes()
	}
	// Listeners bring the route configurations that they use along.
	s.markListeners()
}

// replaceAdded puts out the clusters and listeners that patches add, and takes back those
// that they added before. The first of two with one name counts.
func (s *proxyGroup) replaceAdded(was, now *ir.Patches) {
	for _, p := range s.added(was, model.PatchCluster) {
		s.out.Clusters[p.Name] = nil
	}
	for _, p := range s.added(now, model.PatchCluster) {
		s.out.Clusters[p.Name] = &ir.Cluster{Made: madeBy(p), Name: p.Name, Added: p, Inbound: s.Key.Inbound, Discovery: ir.DiscoverStatic}
	}
	for _, p := range s.added(was, model.PatchListener) {
		s.out.Listeners[p.Name] = nil
	}
	for _, p := range s.added(now, model.PatchListener) {
		s.out.Listeners[p.Name] = &ir.Listener{Made: madeBy(p), Name: p.Name, Added: p, Inbound: s.Key.Inbound}
	}
}

// madeBy is for what a patch adds.
func madeBy(p *ir.Patch) ir.Made { return ir.Made{Origins: model.OriginsOf(p.Origin)} }

// added are the patches that add a target, one for each name, in order. What is added
// everywhere is added to what workloads call, as Istio does.
func (s *proxyGroup) added(v *ir.Patches, target model.PatchTarget) []*ir.Patch {
	var out []*ir.Patch
	if v == nil {
		return nil
	}
	for i := range v.List {
		p := &v.List[i]
		if p.Target != target || p.Operation != model.PatchAdd || s.Key.Inbound && p.Context == model.PatchAnywhere {
			continue
		}
		if !slices.ContainsFunc(out, func(o *ir.Patch) bool { return o.Name == p.Name }) {
			out = append(out, p)
		}
	}
	return out
}

// addedHost is a virtual host that a patch adds.
const addedHost = "envoyfilter~"

// isServiceHost tells the virtual hosts of services from those for unknown hosts and from
// those that patches add.
func isServiceHost(name string) bool { return !isFallback(name) && !strings.HasPrefix(name, addedHost) }

// serveAddedHosts puts the virtual hosts out that patches add to a route configuration, with
// the domains that nobody else has there; it tells whether one of them takes every host.
func (s *proxyGroup) serveAddedHosts(of ir.RouteConfigKey, from *model.Origins, hidePeer bool) (all bool) {
	routeConfig := of.Name
	s.dropAddedHosts(routeConfig)
	taken := map[string]bool{}
	for _, p := range s.added(s.patches, model.PatchVirtualHost) {
		if !p.MatchesRoutes(s.patches.Gateway, of) {
			continue
		}
		v := &ir.VirtualHost{RouteConfig: routeConfig, Of: of, Name: addedHost + plainName(p.Name), Added: p, HidesPeer: hidePeer}
		var made model.OriginList
		made.Add(p.Origin)
		made.AddAll(from)
		for _, d := range p.Domains {
			switch k := (domainKey{routeConfig, d}); {
			case taken[d]:
			case len(s.domains[k]) > 0:
				made.AddAll(s.holderOf(k))
			default:
				taken[d] = true
				v.Domains = append(v.Domains, d)
			}
		}
		v.Origins = made.Since(0)
		name := v.ResourceName()
		if len(v.Domains) == 0 || slices.Contains(s.addedHosts[routeConfig], name) {
			continue
		}
		s.out.VirtualHosts[name] = v
		if s.addedHosts == nil {
			s.addedHosts = map[string][]string{}
		}
		s.addedHosts[routeConfig] = append(s.addedHosts[routeConfig], name)
	}
	return taken["*"]
}

func (s *proxyGroup) dropAddedHosts(routeConfig string) {
	for _, name := range s.addedHosts[routeConfig] {
		s.out.VirtualHosts[name] = nil
	}
	delete(s.addedHosts, routeConfig)
}

// plainName is a name without what separates parts of a resource's name.
func plainName(name string) string { return strings.NewReplacer("/", "_", ":", "_").Replace(name) }
