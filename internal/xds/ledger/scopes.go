package ledger

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// scopes is the state of waits for scopes (SRDS).
//
// A scope (ScopedRouteConfiguration) selects the route configuration of the same name. Envoy
// subscribes to all scopes at once when it has a listener that uses some.
//
// While Envoy starts, no listener of its first response serves before it has scopes, route
// configurations and virtual hosts. Later, only the listener that begins the subscription waits so. Other
// listeners use the scopes that exist, and must be sent after everything that they need. A running
// proxy is therefore sent routeshard.Listener first, to subscribe to scopes, and the other listeners
// when the scopes are usable.
//
// Envoy ACKs a listener when it begins to wait for routes, while the listener that it replaces still
// serves. What the old listener used is removed once all listeners have their routes.
type scopes struct {
	*streamState

	// open is the revision up to which new scopes of a table are usable: they are ACKed, and the
	// virtual hosts of their route configurations are sent.
	open [MaxTables]model.Revision
	// recheck: whether scopes are usable must be checked, whatever open is.
	recheck bool
	// expected: a proxy that connected again has route configurations of scopes, and did not request
	// the scopes yet.
	expected bool
	// possible: a proxy that connected again may have scopes.
	possible bool
	// gaveUp: the proxy does not request route configurations of some listener.
	gaveUp bool
	// optional: the proxy has listeners that do not wait for the first scopes. It was sent listeners
	// without scopes, or had listeners when it connected.
	optional bool
	// hadUser: the proxy connected again with a listener that uses scopes, besides
	// routeshard.Listener. If the proxy has no scopes, that listener waits for them, as all
	// listeners of a starting Envoy do.
	hadUser bool
	// hasListener: the proxy has routeshard.Listener, or was sent it.
	hasListener bool
}

// request records what a request reveals about the proxy's use of scopes.
func (sc *scopes) request(k kind, r *Request) {
	switch {
	case k == srds && len(r.Nonce) == 0:
		sc.optional = sc.optional && !(sc.hadUser && len(r.Initial) == 0)
		sc.hadUser = false
		sc.possible = sc.possible && (len(r.Initial) > 0 || sc.expected)
		sc.expected = false
	case k == rds && sc.strategy.Scopes && !sc.watches[srds].on:
		for _, n := range r.Subscribe {
			sc.expected = sc.expected || routeshard.RouteConfig(string(n)) != string(n)
		}
	case k == lds && r.Nonce != nil:
		sc.gaveUp = false
	case k == lds && len(r.Initial) > 0:
		for _, nv := range r.Initial {
			requests := string(nv.Name) == routeshard.Listener
			sc.hasListener = sc.hasListener || requests
			sc.hadUser = sc.hadUser || !requests && resource.UsesScopes(nv.Version)
		}
		sc.optional = true
		sc.possible = sc.strategy.Scopes && (sc.exist() || sc.hasListener)
	}
}

// listenersSent records which listeners the proxy will have.
func (sc *scopes) listenersSent(f *flight) {
	for e := range f.entries() {
		sc.hasListener = sc.hasListener || e.Name == routeshard.Listener
	}
	sc.optional = sc.optional || !sc.hasListener
}

// subscribed reports whether the proxy has a listener that uses scopes.
func (sc *scopes) subscribed() bool { return sc.watches[srds].on && sc.watches[srds].wildcard }

// exist reports whether the tables have scopes, or had some.
func (sc *scopes) exist() bool {
	return sc.states[0].LastAdded(resource.Scope)+sc.states[1].LastAdded(resource.Scope) > 0
}

// mustBeRequested reports whether other listeners wait until the proxy requests scopes.
func (sc *scopes) mustBeRequested() bool {
	return sc.optional && sc.exist() && !sc.subscribed() && sc.lookup(resource.Listener, routeshard.Listener) != nil
}

// limit returns the newest revision of which listeners may be sent.
func (sc *scopes) limit() model.Revision {
	switch {
	case sc.reconnecting && sc.possible || sc.expected || sc.mustBeRequested():
		return 0
	case !sc.subscribed() || sc.watches[srds].firstPending && !sc.optional:
		return always
	case sc.recheck:
		return 0
	}
	limit := always
	for i, s := range sc.states {
		if s.LastAdded(resource.Scope) > sc.open[i] {
			limit = min(limit, sc.open[i])
		}
	}
	return limit
}

// firstMustWait reports whether the first scopes must wait for listeners: Envoy takes the first
// scopes for all that exist.
func (sc *scopes) firstMustWait() bool {
	return sc.watches[srds].firstPending && !sc.optional && sc.completeUpTo(lds, false) != always
}

// inFlight reports whether the proxy was sent scopes that it needs, or their routes, and did not
// answer yet.
func (sc *scopes) inFlight() bool {
	unanswered := sc.watches[srds].flight != nil || sc.watches[rds].flight != nil || sc.watches[vhds].flight != nil
	return unanswered && sc.strategy.Scopes && sc.subscribed() && sc.limit() != always
}

// advance admits listeners once all scopes are usable.
func (sc *scopes) advance() {
	if !sc.strategy.Scopes || !sc.subscribed() || sc.limit() == always || !sc.allSent() {
		return
	}
	for _, s := range sc.states {
		for e := range s.All(resource.Scope) {
			if !sc.watches[srds].holds(e) && !sc.routesSent(e.Name) {
				return
			}
		}
	}
	sc.recheck = false
	for i, s := range sc.states {
		sc.open[i] = s.Revision
	}
}

// allSent reports whether all scopes are ACKed, and virtual hosts as new as the scopes are sent.
func (sc *scopes) allSent() bool {
	w, v := &sc.watches[srds], &sc.watches[vhds]
	if w.firstPending || w.toSend != nil || len(w.groups) > 0 || w.flight != nil || v.toSend != nil {
		return false
	}
	for i, s := range sc.states {
		if s.LastChanged(resource.Scope) > w.at[i].add || v.on && s.LastAdded(resource.Scope) > v.at[i].add {
			return false
		}
	}
	return true
}

// routesSent reports whether the proxy has a route configuration and was sent all of its virtual
// hosts. It returns true for one that the proxy refused, that does not exist, or that it asks for.
func (sc *scopes) routesSent(name string) bool {
	w := &sc.watches[rds]
	if routeshard.IsOnDemand(name) {
		return true // requests that need it wait for it
	}
	if sc.synced.Has(name) && w.names.Has(name) {
		return true
	}
	return w.held[name] != nil || sc.lookup(w.typ, name) == nil
}

// used reports whether the proxy may have scopes, or had some on this stream.
func (sc *scopes) used() bool {
	return sc.strategy.Scopes &&
		(sc.exist() || sc.expected || sc.reconnecting && sc.possible || sc.completeUpTo(srds, false) != always)
}

// unusedUpTo returns the revision up to which no listener uses what was removed.
func (sc *scopes) unusedUpTo() model.Revision {
	floor := sc.completeUpTo(lds, false)
	if sc.used() && (floor != always || sc.awaitRoutes()) {
		return 0 // which routes are waited for is known of the newest listeners only
	}
	return floor
}

// awaitRoutes reports whether a listener of the proxy may wait for its routes, while the listener
// that it replaces still serves.
func (sc *scopes) awaitRoutes() bool {
	w := &sc.watches[lds]
	switch {
	case !w.on || w.firstPending:
		return false
	case sc.reconnecting || sc.expected:
		return true
	case sc.gaveUp || len(w.held)+len(sc.watches[srds].held) > 0:
		return false // they wait forever
	}
	for _, s := range sc.states {
		for e := range s.All(resource.Listener) {
			if slices.ContainsFunc(e.Resource().RouteConfigs, func(rc string) bool { return !sc.routesSent(rc) }) {
				return true
			}
		}
		for e := range s.All(resource.Scope) {
			if !sc.routesSent(e.Name) {
				return true
			}
		}
	}
	return false
}

// stopWaiting admits everything that waits for scopes.
func (sc *scopes) stopWaiting() {
	sc.expected, sc.recheck = false, false
	sc.optional = sc.optional && !sc.hasListener
	sc.gaveUp = true
	for i := range sc.states {
		sc.open[i] = max(sc.open[i], sc.watches[srds].acked(i).add)
	}
}
