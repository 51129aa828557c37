package server

import (
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// strategies selects the route strategy of a delta stream: the first row that matches applies. All
// other streams get whole routes.
//
// Sidecars that may have scopes from another control plane, or from another strategy, keep them
// under each of these, see addKnownShards.
var strategies = []struct {
	option   RouteStrategy
	typ      model.ProxyType // empty: any
	agent    string          // empty: any
	since    release         // of Envoy; the zero value: any, also an unknown one
	strategy *ledger.Strategy
	splits   bool // large route configurations are sharded
}{
	{option: RoutesVHDS, typ: model.ProxySidecar, agent: "envoy", strategy: ledger.ScopedRoutes},
	{option: RoutesVHDS, strategy: ledger.VirtualHosts},
	{option: RoutesScoped, typ: model.ProxySidecar, agent: "envoy", since: celInFormats, strategy: ledger.ScopedRoutes, splits: true},
	{option: RoutesScoped, typ: model.ProxySidecar, agent: "envoy", strategy: ledger.ScopedRoutes},
	{option: RoutesAuto, typ: model.ProxySidecar, agent: "envoy", since: shardsByDefault, strategy: ledger.ScopedRoutes, splits: true},
	{option: RoutesAuto, typ: model.ProxySidecar, agent: "envoy", strategy: ledger.ScopedRoutes},
}

// release is a release of Envoy: 1.34.
type release struct{ major, minor int }

var (
	// celInFormats is the first release that evaluates %CEL()% in all formats, including the header
	// that selects a scope, if it is built with it. Other releases refuse listeners with it.
	celInFormats = release{1, 34}
	// shardsByDefault is the first release that gets route shards by default. Older releases are
	// reported not to support VHDS in the route configurations of scopes, and 1.34 compiles the regular
	// expressions of a shard for each request.
	shardsByDefault = release{1, 40}
)

// fits reports whether a proxy has this release or a newer one, with the required extensions.
func (r release) fits(p *model.Proxy) bool {
	return r == (release{}) || !p.NoShards && r.reaches(p.EnvoyVersion)
}

// reaches reports whether a version, "1.40.0", is this release or a newer one. An unknown version
// is not.
func (r release) reaches(version string) bool {
	var v release
	if n, _ := fmt.Sscanf(version, "%d.%d.", &v.major, &v.minor); n < 2 {
		return false
	}
	return v.major > r.major || v.major == r.major && v.minor >= r.minor
}

// strategy returns how routes reach a proxy, and whether large route configurations are sharded.
func (s *Server) strategy(protocol ledger.Protocol, p *model.Proxy, agent string) (_ *ledger.Strategy, splits bool) {
	for _, r := range strategies {
		if r.option == s.opts.RouteStrategy && protocol == ledger.Delta && (r.typ == "" || r.typ == p.Type) &&
			(r.agent == "" || r.agent == agent) && r.since.fits(p) {
			return r.strategy, r.splits
		}
	}
	return ledger.WholeRoutes, false
}

// addKnownShards adds to the stream's tables the route shards that a proxy has which connects again:
// listeners that it drains may still use them. It does the same for the listener that makes Envoy
// request scopes: Envoy does not report when that is removed, and would not request scopes again.
// The ledger uses these tables when it compares what the proxy has.
func (st *stream) addKnownShards(r *request) error {
	if !st.strategy.Scopes || len(r.Initial) == 0 {
		return nil
	}
	lacks := st.lackedShards(r)
	if len(lacks) == 0 {
		return nil
	}
	ctx, cancel := st.transport.requestContext()
	defer cancel()
	if err := st.server.binder.AddShards(ctx, st.proxy, lacks); err != nil {
		return bindError(st.proxy, err)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.refresh()
	return nil
}

// lackedShards returns the forms of route configurations of which the proxy has shards and the tables have
// none, and routeshard.Listener. Route configurations that no longer exist do not count.
func (st *stream) lackedShards(r *request) []string {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch string(r.TypeURL) {
	case resource.ListenerURL:
		has := func(nv ledger.NameVersion) bool { return string(nv.Name) == routeshard.Listener }
		if slices.ContainsFunc(r.Initial, has) && !st.has(resource.Listener, routeshard.Listener) {
			return []string{routeshard.Listener}
		}
	case resource.ScopeURL, resource.RouteConfigURL:
		return st.lackedRouteConfigs(r)
	}
	return nil
}

// lackedRouteConfigs returns the forms of the route configurations of lackedShards. The lock is held.
func (st *stream) lackedRouteConfigs(r *request) (out []string) {
	last := ""
	for _, nv := range r.Initial {
		name := string(nv.Name)
		form := routeshard.Form(name)
		if form == name || form == last {
			continue
		}
		last = form
		if st.has(resource.VHDSRouteConfig, routeshard.Whole(form)) && !st.has(resource.Scope, name) && !slices.Contains(out, form) {
			out = append(out, form)
		}
	}
	return out
}

// has reports whether the stream's tables have a resource. The lock is held.
func (st *stream) has(t resource.Type, name string) bool {
	for _, table := range st.tables {
		if table.State().Get(t, name) != nil {
			return true
		}
	}
	return false
}

// hasScopes reports whether the stream's tables have a scope. The lock is held.
func (st *stream) hasScopes() bool {
	for _, table := range st.tables {
		if table.State().Len(resource.Scope) > 0 {
			return true
		}
	}
	return false
}
