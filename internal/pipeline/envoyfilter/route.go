package envoyfilter

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// RouteConfig patches a route configuration without its virtual hosts.
func (s *Set) RouteConfig(of ir.RouteConfigKey, m *routev3.RouteConfiguration) (*routev3.RouteConfiguration, []Problem) {
	if !s.any(model.PatchRouteConfig) {
		return m, nil
	}
	out, _, problems := run(s, m, func(w *work, r *routev3.RouteConfiguration) bool {
		w.routeConfig(of, r)
		return true
	}, func(*routev3.RouteConfiguration) error { return nil })
	return out, problems
}

func (w *work) routeConfig(of ir.RouteConfigKey, r *routev3.RouteConfiguration) {
	name := r.Name
	for _, p := range w.of(model.PatchRouteConfig) {
		if p.Operation.Merges() && p.MatchesRoutes(w.gateway, of) {
			mergeMessages(r, p.value, p.Operation == model.PatchMergeReplace)
			w.did(p)
		}
	}
	r.Name = name // listeners refer to it
}

// ChangesForwarding reports whether a patch may change how routes of a virtual host forward requests, or add such routes.
func (s *Set) ChangesForwarding(v *ir.VirtualHost) bool {
	if !s.any(model.PatchVirtualHost, model.PatchHTTPRoute) {
		return false
	}
	changes := func(p *patch) bool { return p.changesForwarding() && p.matchesHost(s.gateway, v.Of, v.Name, v.Domains) }
	return slices.ContainsFunc(s.by[model.PatchHTTPRoute], changes) || slices.ContainsFunc(s.by[model.PatchVirtualHost], changes)
}

func (p *patch) changesForwarding() bool {
	switch v := p.value.(type) {
	case *routev3.Route:
		return v.GetRoute() != nil
	case *routev3.VirtualHost:
		return p.Operation.Merges() && (v.RetryPolicy != nil || v.RetryPolicyTypedConfig != nil || len(v.Routes) > 0)
	}
	return false
}

// VirtualHost patches a virtual host of a route configuration. name is the name that patches match. Not present: a patch
// removes it.
func (s *Set) VirtualHost(of ir.RouteConfigKey, name string, m *routev3.VirtualHost) (out *routev3.VirtualHost, present bool, problems []Problem) {
	if !s.any(model.PatchVirtualHost, model.PatchHTTPRoute) {
		return m, true, nil
	}
	return run(s, m, func(w *work, v *routev3.VirtualHost) bool { return w.virtualHost(of, name, v) }, checkVirtualHost)
}

func (w *work) virtualHost(of ir.RouteConfigKey, name string, v *routev3.VirtualHost) bool {
	own, domains := v.Name, v.Domains
	for _, p := range w.of(model.PatchVirtualHost) {
		if p.Operation == model.PatchAdd || !p.matchesHost(w.gateway, of, name, domains) {
			continue
		}
		w.did(p)
		switch {
		case p.Operation == model.PatchRemove:
			return false
		case p.Operation.Merges():
			mergeMessages(v, p.value, p.Operation == model.PatchMergeReplace)
		case p.Operation == model.PatchReplace:
			v.Reset()
			mergeMessages(v, p.value, false)
		}
		if extra := slices.IndexFunc(p.Domains, func(d string) bool { return !slices.Contains(domains, d) }); extra >= 0 {
			w.failed(p, "domain %q is not added to virtual host %s, since another one may have it: use ADD, or a VirtualService", p.Domains[extra], name)
		}
	}
	v.Name, v.Domains = own, domains // names and domains are unique in a route configuration
	w.routes(of, name, v)
	return true
}

// routes first removes and merges routes, then inserts.
func (w *work) routes(of ir.RouteConfigKey, name string, v *routev3.VirtualHost) {
	list := w.of(model.PatchHTTPRoute)
	meets := func(p *patch) bool { return p.matchesHost(w.gateway, of, name, v.Domains) }
	for _, p := range list {
		if !meets(p) {
			continue
		}
		switch {
		case p.Operation == model.PatchRemove:
			v.Routes = place(w, v.Routes, p, true, p.matchesRoute)
		case p.Operation.Merges():
			w.mergeRoutes(p, v.Routes)
		}
	}
	for _, p := range list {
		named := p.Routes != nil && p.Routes.Route != nil
		switch {
		case p.Operation == model.PatchRemove || p.Operation.Merges() || !meets(p):
		case p.Operation == model.PatchFirst && named && !slices.ContainsFunc(v.Routes, p.matchesRoute):
		default:
			v.Routes = place(w, v.Routes, p, named, p.matchesRoute)
		}
	}
}

func (w *work) mergeRoutes(p *patch, routes []*routev3.Route) {
	for _, r := range routes {
		if p.matchesRoute(r) {
			mergeMessages(r, p.value, p.Operation == model.PatchMergeReplace)
			letTimeoutCount(p.value, r.GetRoute())
			w.did(p)
		}
	}
}

// letTimeoutCount removes the max_stream_duration of a route without a timeout if a patch sets one: Envoy would ignore it.
func letTimeoutCount(patch proto.Message, r *routev3.RouteAction) {
	p, _ := patch.(*routev3.Route)
	set := p.GetRoute()
	if r != nil && set.GetTimeout().AsDuration() > 0 && set.GetMaxStreamDuration() == nil && r.GetMaxStreamDuration().GetMaxStreamDuration() == nil {
		r.MaxStreamDuration = nil
	}
}

// inlineKey is the key of a route configuration inside a listener. One that only a patch has is matched by name.
func (w *work) inlineKey(r *routev3.RouteConfiguration) ir.RouteConfigKey {
	of, ok := w.inline[r.Name]
	if !ok {
		of.Name = r.Name
	}
	return of
}

// configures reports whether the patch has a configuration of an HTTP filter for routes.
func (p *patch) configures(filter string) bool {
	switch v := p.value.(type) {
	case *routev3.RouteConfiguration:
		return v.TypedPerFilterConfig[filter] != nil || slices.ContainsFunc(v.VirtualHosts, func(h *routev3.VirtualHost) bool { return hostConfigures(h, filter) })
	case *routev3.VirtualHost:
		return hostConfigures(v, filter)
	case *routev3.Route:
		return routeConfigures(v, filter)
	}
	return false
}

func hostConfigures(v *routev3.VirtualHost, filter string) bool {
	return v.TypedPerFilterConfig[filter] != nil || slices.ContainsFunc(v.Routes, func(r *routev3.Route) bool { return routeConfigures(r, filter) })
}

func routeConfigures(r *routev3.Route, filter string) bool {
	return r.TypedPerFilterConfig[filter] != nil ||
		slices.ContainsFunc(r.GetRoute().GetWeightedClusters().GetClusters(), func(c *routev3.WeightedCluster_ClusterWeight) bool {
			return c.TypedPerFilterConfig[filter] != nil
		})
}

// inlineRoutes patches a route configuration inside a listener.
func (w *work) inlineRoutes(r *routev3.RouteConfiguration) {
	of := w.inlineKey(r)
	w.routeConfig(of, r)
	r.VirtualHosts = slices.DeleteFunc(r.VirtualHosts, func(v *routev3.VirtualHost) bool { return !w.virtualHost(of, v.Name, v) })
	for _, p := range w.of(model.PatchVirtualHost) {
		if p.Operation != model.PatchAdd || !p.MatchesRoutes(w.gateway, of) {
			continue
		}
		if taken := slices.ContainsFunc(r.VirtualHosts, func(v *routev3.VirtualHost) bool {
			return slices.ContainsFunc(v.Domains, func(d string) bool { return slices.Contains(p.Domains, d) })
		}); taken {
			w.failed(p, "route configuration %s already has a virtual host with one of its domains"+leftOut, r.Name)
			continue
		}
		r.VirtualHosts = place(w, r.VirtualHosts, p, false, func(*routev3.VirtualHost) bool { return false })
	}
}

func (p *patch) matchesHost(gateway bool, of ir.RouteConfigKey, name string, domains []string) bool {
	m := p.Routes
	if m == nil {
		return true
	}
	return p.MatchesRoutes(gateway, of) && (m.VirtualHost == "" || m.VirtualHost == name) &&
		(m.Domain == "" || slices.Contains(domains, m.Domain))
}

func (p *patch) matchesRoute(r *routev3.Route) bool {
	if p.Routes == nil || p.Routes.Route == nil {
		return true
	}
	m, action := p.Routes.Route, ""
	switch r.Action.(type) {
	case *routev3.Route_Route:
		action = "ROUTE"
	case *routev3.Route_Redirect:
		action = "REDIRECT"
	case *routev3.Route_DirectResponse:
		action = "DIRECT_RESPONSE"
	}
	return (m.Name == "" || m.Name == r.Name) && (m.Action == "" || m.Action == action)
}
