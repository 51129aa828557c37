package server

import (
	"slices"

	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// keep sees to it that the stream's tables have in buckets what a proxy that connects again says it
// has so: listeners that it drains may look for them yet. So it does with the listener that asks for
// scopes: Envoy does not tell when that goes, and would never ask again. The ledger has those tables
// when it compares what the proxy has.
func (st *stream) keep(r *request) error {
	if !st.strategy.Scopes || len(r.Initial) == 0 {
		return nil
	}
	lacks := st.lacks(r)
	if len(lacks) == 0 {
		return nil
	}
	present, leave := st.transport.present()
	defer leave()
	if err := st.server.binder.Keep(present, st.proxy, lacks); err != nil {
		return unbound(st.proxy, err)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.refresh()
	return nil
}

// lacks are the route configurations of which the proxy has buckets and the tables have none, and
// routeshard.Listener likewise. Route configurations that are no more it has for nothing.
func (st *stream) lacks(r *request) []string {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch string(r.TypeURL) {
	case resource.ListenerURL:
		has := func(nv ledger.NameVersion) bool { return string(nv.Name) == routeshard.Listener }
		if slices.ContainsFunc(r.Initial, has) && !st.has(resource.Listener, routeshard.Listener) {
			return []string{routeshard.Listener}
		}
	case resource.ScopeURL, resource.RouteConfigURL:
		return st.lacksBuckets(r)
	}
	return nil
}

// lacksBuckets are the route configurations among what the proxy lacks. The lock is held.
func (st *stream) lacksBuckets(r *request) (out []string) {
	last := ""
	for _, nv := range r.Initial {
		name := string(nv.Name)
		rc := routeshard.RouteConfig(name)
		if rc == name || rc == last {
			continue
		}
		if last = rc; st.has(resource.VHDSRouteConfig, rc) && !st.has(resource.Scope, name) && !slices.Contains(out, rc) {
			out = append(out, rc)
		}
	}
	return out
}

// has tells whether a resource is in the stream's tables. The lock is held.
func (st *stream) has(t resource.Type, name string) bool {
	for _, table := range st.tables {
		if table.State().Get(t, name) != nil {
			return true
		}
	}
	return false
}

// hasScopes tells whether any scope is in the stream's tables. The lock is held.
func (st *stream) hasScopes() bool {
	for _, table := range st.tables {
		if table.State().Len(resource.Scope) > 0 {
			return true
		}
	}
	return false
}
