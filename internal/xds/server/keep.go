package server

import (
	"slices"

	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// keep adds to the stream's tables the route shards that a proxy has which connects again:
// listeners that it drains may still use them. It does the same for the listener that makes Envoy
// request scopes: Envoy does not report when that is removed, and would not request scopes again.
// The ledger uses these tables when it compares what the proxy has.
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
		return bindError(st.proxy, err)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.refresh()
	return nil
}

// lacks returns the route configurations of which the proxy has shards and the tables have none,
// and routeshard.Listener. Route configurations that no longer exist do not count.
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
		return st.lacksShards(r)
	}
	return nil
}

// lacksShards returns the route configurations among what the proxy lacks. The lock is held.
func (st *stream) lacksShards(r *request) (out []string) {
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
