package ledger

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// A scope (ScopedRouteConfiguration) selects the route configuration of the same name. Envoy
// subscribes to all scopes at once when it has a listener that uses some.
//
// While Envoy starts, no listener of its first response serves before scopes, route
// configurations and virtual hosts are there. Later, only the listener that begins the
// subscription waits so. Other listeners use the scopes that exist, and must be sent after
// everything that they need. A running proxy is therefore sent routeshard.Listener first, to
// subscribe to scopes, and the other listeners when those are usable.
//
// Envoy ACKs a listener when it begins to wait for routes, while the listener that it replaces
// still serves. What that one used is removed when the routes of all listeners are there.

// scopes is the state of waits for scopes (SRDS).
type scopes struct {
	// open is the revision up to which new scopes of a table are of use: they are ACKed,
	// and the virtual hosts of their route configurations are sent.
	open [MaxTables]model.Revision
	// recheck: what is of use is to be found out whatever the revisions say.
	recheck bool
	// expected: a proxy that has connected again has route configurations of scopes, and
	// did not ask for the scopes yet.
	expected bool
	// possible: a proxy that has connected again may have scopes, and has not told that it has none.
	possible bool
	// gaveUp: the proxy does not ask for route configurations of some listener.
	gaveUp bool
	// scopesOptional: the proxy took listeners without scopes, or had some when it connected, and they do not
	// wait for the first scopes.
	scopesOptional bool
	// using: it connected again with a listener that uses scopes, besides routeshard.Listener. If it has
	// none, that listener waits for them, as all of a starting Envoy's do.
	using bool
	// hasScopesListener: it has routeshard.Listener, or was sent it.
	hasScopesListener bool
}

// scopesRequested records what a request reveals about the proxy's use of scopes.
func (l *Ledger) scopesRequested(k kind, r *Request) {
	switch {
	case k == srds && len(r.Nonce) == 0:
		l.scopes.scopesOptional = l.scopes.scopesOptional && !(l.scopes.using && len(r.Initial) == 0)
		l.scopes.using = false
		l.scopes.possible = l.scopes.possible && (len(r.Initial) > 0 || l.scopes.expected)
		l.scopes.expected = false
	case k == rds && l.strategy.Scopes && !l.watches[srds].on:
		for _, n := range r.Subscribe {
			l.scopes.expected = l.scopes.expected || routeshard.RouteConfig(string(n)) != string(n)
		}
	case k == lds && r.Nonce != nil:
		l.scopes.gaveUp = false
	case k == lds && len(r.Initial) > 0:
		for _, nv := range r.Initial {
			asks := string(nv.Name) == routeshard.Listener
			l.scopes.hasScopesListener, l.scopes.using = l.scopes.hasScopesListener || asks, l.scopes.using || !asks && resource.UsesScopes(nv.Version)
		}
		l.scopes.scopesOptional = true
		l.scopes.possible = l.strategy.Scopes && (l.hadScopes() || l.scopes.hasScopesListener)
	}
}

// listenersSent records which listeners the proxy will have.
func (l *Ledger) listenersSent(f *flight) {
	for e := range f.entries() {
		l.scopes.hasScopesListener = l.scopes.hasScopesListener || e.Name == routeshard.Listener
	}
	l.scopes.scopesOptional = l.scopes.scopesOptional || !l.scopes.hasScopesListener
}

// mustRequestScopes reports whether other listeners wait until the proxy requests scopes.
func (l *Ledger) mustRequestScopes() bool {
	return l.scopes.scopesOptional && l.hadScopes() && !l.wantsScopes() && l.lookup(resource.Listener, routeshard.Listener) != nil
}

// planScopesListener plans only the listener that makes the proxy request scopes.
func (l *Ledger) planScopesListener() (*plan, bool) {
	w, e := &l.watches[lds], l.lookup(resource.Listener, routeshard.Listener)
	if l.scopes.hasScopesListener || l.reconnecting || !l.mustRequestScopes() || w.holds(e) {
		return nil, false
	}
	p := l.newPlan(w)
	p.parts[0], p.explicit = table.NewBatch([]*table.Entry{e}), true
	p.toSend = l.pool.Without(p.toSend, names.Strings([]string{e.Name}))
	w.notePending(e.Revision)
	return p, true
}

// wantsScopes reports whether the proxy has a listener that uses scopes.
func (l *Ledger) wantsScopes() bool { return l.watches[srds].on && l.watches[srds].wildcard }

// limitOfScopes returns the newest revision of which listeners may be sent.
func (l *Ledger) limitOfScopes() model.Revision {
	switch {
	case l.reconnecting && l.scopes.possible || l.scopes.expected || l.mustRequestScopes():
		return 0
	case !l.wantsScopes() || l.watches[srds].firstPending && !l.scopes.scopesOptional:
		return always
	case l.scopes.recheck:
		return 0
	}
	limit := always
	for i, s := range l.states {
		if s.LastAdded(resource.Scope) > l.scopes.open[i] {
			limit = min(limit, l.scopes.open[i])
		}
	}
	return limit
}

// scopesWait reports whether the first scopes must wait for listeners: Envoy takes the first scopes
// for all that exist.
func (l *Ledger) scopesWait() bool {
	return l.watches[srds].firstPending && !l.scopes.scopesOptional && l.completeUpTo(lds, false) != always
}

// takesScopes reports whether the proxy was sent scopes that it needs, or their routes, and did not
// answer yet.
func (l *Ledger) takesScopes() bool {
	flying := l.watches[srds].flight != nil || l.watches[rds].flight != nil || l.watches[vhds].flight != nil
	return flying && l.strategy.Scopes && l.wantsScopes() && l.limitOfScopes() != always
}

// openScopes admits listeners once all scopes are usable.
func (l *Ledger) openScopes() {
	if !l.strategy.Scopes || !l.wantsScopes() || l.limitOfScopes() == always || !l.scopesSent() {
		return
	}
	for _, s := range l.states {
		for e := range s.All(resource.Scope) {
			if !l.watches[srds].holds(e) && !l.routesSent(e.Name) {
				return
			}
		}
	}
	l.scopes.recheck = false
	for i, s := range l.states {
		l.scopes.open[i] = s.Revision
	}
}

// scopesSent reports whether all scopes are ACKed, and virtual hosts as new as the scopes are sent.
func (l *Ledger) scopesSent() bool {
	w, v := &l.watches[srds], &l.watches[vhds]
	if w.firstPending || w.toSend != nil || len(w.groups) > 0 || w.flight != nil || v.toSend != nil {
		return false
	}
	for i, s := range l.states {
		if s.LastChanged(resource.Scope) > w.at[i].add || v.on && s.LastAdded(resource.Scope) > v.at[i].add {
			return false
		}
	}
	return true
}

// routesSent reports whether the proxy has a route configuration and was sent all of its virtual
// hosts. It returns true for one that the proxy refused or that does not exist.
func (l *Ledger) routesSent(name string) bool {
	w := &l.watches[rds]
	if l.synced.Has(name) && w.names.Has(name) {
		return true
	}
	return w.held[name] != nil || l.lookup(w.typ, name) == nil
}

// usesScopes reports whether the proxy may have scopes, or had some on this stream.
func (l *Ledger) usesScopes() bool {
	return l.strategy.Scopes && (l.hadScopes() || l.scopes.expected || l.reconnecting && l.scopes.possible || l.completeUpTo(srds, false) != always)
}

// hadScopes reports whether the tables ever had scopes.
func (l *Ledger) hadScopes() bool {
	return l.states[0].LastAdded(resource.Scope)+l.states[1].LastAdded(resource.Scope) > 0
}

// unusedUpTo returns the revision up to which no listener uses what was removed.
func (l *Ledger) unusedUpTo() model.Revision {
	floor := l.completeUpTo(lds, false)
	if l.usesScopes() && (floor != always || l.awaitsRoutes()) {
		return 0 // which routes are waited for is known of the newest listeners only
	}
	return floor
}

// awaitsRoutes reports whether a listener of the proxy may wait for its routes, while the listener
// that it replaces still serves.
func (l *Ledger) awaitsRoutes() bool {
	w := &l.watches[lds]
	switch {
	case !w.on || w.firstPending:
		return false
	case l.reconnecting || l.scopes.expected:
		return true
	case l.scopes.gaveUp || len(w.held)+len(l.watches[srds].held) > 0:
		return false // they wait for ever
	}
	for _, s := range l.states {
		for e := range s.All(resource.Listener) {
			if slices.ContainsFunc(e.Resource().RouteConfigs, func(rc string) bool { return !l.routesSent(rc) }) {
				return true
			}
		}
		for e := range s.All(resource.Scope) {
			if !l.routesSent(e.Name) {
				return true
			}
		}
	}
	return false
}

// removesRoutes reports whether scopes, route configurations or virtual hosts are to be removed.
func (l *Ledger) removesRoutes() bool {
	for _, k := range []kind{srds, rds, vhds} {
		if w := &l.watches[k]; w.on && (w.toRemove != nil || l.hasRemovals(w, l.newPlan(w))) {
			return true
		}
	}
	return false
}

func (l *Ledger) stopWaitingForScopes() {
	l.scopes.expected, l.scopes.recheck = false, false
	l.scopes.scopesOptional = l.scopes.scopesOptional && !l.scopes.hasScopesListener
	l.scopes.gaveUp = true
	for i := range l.states {
		l.scopes.open[i] = max(l.scopes.open[i], l.watches[srds].acked(i).add)
	}
}
