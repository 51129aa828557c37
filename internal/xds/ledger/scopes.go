package ledger

import (
	"slices"

	"github.com/moonsail/moonsail/internal/bucket"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// A scope leads to the route configuration of its name. Envoy asks for scopes when it has
// a listener that wants some: all of them, of all listeners, with one subscription. The
// listeners that begin it take no connection before scopes, route configurations and virtual
// hosts are there. A further one takes them at once, with those that are there: it must
// be sent after all that it needs. And a listener is ACKed as it begins to wait for
// routes, while the one in whose place it comes goes on: what that one used is removed
// when the routes of all listeners are there.

// scopes is what listeners wait for: scopes that they may use.
type scopes struct {
	// open is the revision up to which new scopes of a table are of use: they are ACKed,
	// and the virtual hosts of their route configurations are sent.
	open [MaxTables]model.Revision
	// anew: what is of use is to be found out whatever the revisions say.
	anew bool
	// expected: a proxy that has connected again has route configurations of scopes, and
	// did not ask for the scopes yet.
	expected bool
	// possible: a proxy that has connected again may have scopes, and has not told that it has none.
	possible bool
	// impatient: the proxy does not ask for route configurations of some listener.
	impatient bool
}

// scopesAsked notes what a request tells of a proxy's use of scopes.
func (l *Ledger) scopesAsked(k kind, r *Request) {
	switch {
	case k == srds && len(r.Nonce) == 0:
		l.scopes.possible = l.scopes.possible && (len(r.Initial) > 0 || l.scopes.expected)
		l.scopes.expected = false
	case k == rds && l.strategy.Scopes && !l.watches[srds].on:
		for _, n := range r.Subscribe {
			l.scopes.expected = l.scopes.expected || bucket.RouteConfig(string(n)) != string(n)
		}
	case k == lds && r.Nonce != nil:
		l.scopes.impatient = false
	case k == lds && len(r.Initial) > 0:
		l.scopes.possible = l.strategy.Scopes && (l.hadScopes() ||
			slices.ContainsFunc(r.Initial, func(nv NameVersion) bool { return string(nv.Name) == bucket.Listener }))
	}
}

// wantsScopes tells whether the proxy has a listener that uses scopes.
func (l *Ledger) wantsScopes() bool { return l.watches[srds].on && l.watches[srds].wild }

// limitOfScopes is the newest revision of which listeners may be sent.
func (l *Ledger) limitOfScopes() model.Revision {
	switch {
	case l.returning && l.scopes.possible || l.scopes.expected:
		return 0
	case !l.wantsScopes() || l.watches[srds].answer:
		return always
	case l.scopes.anew:
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

// scopesWait tells whether the first scopes must wait: listeners that wait for them take
// them for all that there are, so that listeners which use others go first.
func (l *Ledger) scopesWait() bool {
	return l.watches[srds].answer && l.floor(lds, false) != always
}

// openScopes lets listeners go when all scopes are of use.
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
	l.scopes.anew = false
	for i, s := range l.states {
		l.scopes.open[i] = s.Revision
	}
}

// scopesSent tells whether all scopes are ACKed, and virtual hosts as new as they are sent.
func (l *Ledger) scopesSent() bool {
	w, v := &l.watches[srds], &l.watches[vhds]
	if w.answer || w.todo != nil || len(w.groups) > 0 || w.flight != nil || v.todo != nil {
		return false
	}
	for i, s := range l.states {
		if s.LastChanged(resource.Scope) > w.at[i].add || v.on && s.LastAdded(resource.Scope) > v.at[i].add {
			return false
		}
	}
	return true
}

// routesSent tells whether the proxy holds a route configuration, and was sent all of its
// virtual hosts. One that it refused, or that is not there, nobody waits for.
func (l *Ledger) routesSent(name string) bool {
	w := &l.watches[rds]
	if l.synced.Has(name) && w.names.Has(name) {
		return true
	}
	return w.held[name] != nil || l.lookup(w.typ, name) == nil
}

// usesScopes tells whether the proxy may have scopes, or have had some on this stream.
func (l *Ledger) usesScopes() bool {
	return l.strategy.Scopes && (l.hadScopes() || l.scopes.expected || l.returning && l.scopes.possible || l.floor(srds, false) != always)
}

// hadScopes tells whether the tables have ever had scopes.
func (l *Ledger) hadScopes() bool {
	return l.states[0].LastAdded(resource.Scope)+l.states[1].LastAdded(resource.Scope) > 0
}

// unused is the revision up to which what went is used by no listener.
func (l *Ledger) unused() model.Revision {
	floor := l.floor(lds, false)
	if l.usesScopes() && (floor != always || l.awaitsRoutes()) {
		return 0 // which routes are waited for is known of the newest listeners only
	}
	return floor
}

// awaitsRoutes tells whether some listener of the proxy may wait for its routes, while the
// one in whose place it comes goes on. A table has others, too, that no listener uses.
func (l *Ledger) awaitsRoutes() bool {
	w := &l.watches[lds]
	switch {
	case !w.on || w.answer:
		return false
	case l.returning || l.scopes.expected:
		return true
	case l.scopes.impatient || len(w.held)+len(l.watches[srds].held) > 0:
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

// removesRoutes tells whether there is something to remove that a listener may use.
func (l *Ledger) removesRoutes() bool {
	for _, k := range []kind{srds, rds, vhds} {
		if w := &l.watches[k]; w.on && (w.gone != nil || l.removed(w, l.newPlan(w))) {
			return true
		}
	}
	return false
}

func (l *Ledger) stopWaitingForScopes() {
	l.scopes.expected, l.scopes.anew = false, false
	l.scopes.impatient = true
	for i := range l.states {
		l.scopes.open[i] = max(l.scopes.open[i], l.watches[srds].acked(i).add)
	}
}
