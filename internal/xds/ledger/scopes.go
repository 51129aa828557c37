package ledger

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// A scope leads to the route configuration of its name. Envoy asks for scopes when it has
// a listener that wants some: all of them, of all listeners, with one subscription. As Envoy
// starts, no listener of its first ones takes connections before scopes, route configurations and virtual
// hosts are there. Later, the one that begins the subscription waits so, and no other: that takes
// scopes at once, as far as they are there, and must be sent after all that it needs. So a proxy that
// has listeners gets routeshard.Listener first, to ask for scopes, and the others when those are of use.
// And a listener is ACKed as it begins to wait for
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
	// late: the proxy took listeners without scopes, or had some when it connected, and they do not
	// wait for the first scopes.
	late bool
	// using: it connected again with a listener that uses scopes, besides routeshard.Listener. If it has
	// none, that listener waits for them, as all of a starting Envoy's do.
	using bool
	// led: it has routeshard.Listener, or was sent it.
	led bool
}

// scopesAsked notes what a request tells of a proxy's use of scopes.
func (l *Ledger) scopesAsked(k kind, r *Request) {
	switch {
	case k == srds && len(r.Nonce) == 0:
		l.scopes.late = l.scopes.late && !(l.scopes.using && len(r.Initial) == 0)
		l.scopes.using = false
		l.scopes.possible = l.scopes.possible && (len(r.Initial) > 0 || l.scopes.expected)
		l.scopes.expected = false
	case k == rds && l.strategy.Scopes && !l.watches[srds].on:
		for _, n := range r.Subscribe {
			l.scopes.expected = l.scopes.expected || routeshard.RouteConfig(string(n)) != string(n)
		}
	case k == lds && r.Nonce != nil:
		l.scopes.impatient = false
	case k == lds && len(r.Initial) > 0:
		for _, nv := range r.Initial {
			asks := string(nv.Name) == routeshard.Listener
			l.scopes.led, l.scopes.using = l.scopes.led || asks, l.scopes.using || !asks && resource.UsesScopes(nv.Version)
		}
		l.scopes.late = true
		l.scopes.possible = l.strategy.Scopes && (l.hadScopes() || l.scopes.led)
	}
}

// listenersSent notes what listeners the proxy takes.
func (l *Ledger) listenersSent(f *flight) {
	for e := range f.entries() {
		l.scopes.led = l.scopes.led || e.Name == routeshard.Listener
	}
	l.scopes.late = l.scopes.late || !l.scopes.led
}

// mustAsk tells whether other listeners wait until the proxy has asked for scopes.
func (l *Ledger) mustAsk() bool {
	return l.scopes.late && l.hadScopes() && !l.wantsScopes() && l.lookup(resource.Listener, routeshard.Listener) != nil
}

// planScopesListener takes the listener alone that has the proxy ask for scopes.
func (l *Ledger) planScopesListener() (*plan, bool) {
	w, e := &l.watches[lds], l.lookup(resource.Listener, routeshard.Listener)
	if l.scopes.led || l.returning || !l.mustAsk() || w.holds(e) {
		return nil, false
	}
	p := l.newPlan(w)
	p.parts[0], p.explicit = table.NewBatch([]*table.Entry{e}), true
	p.todo = l.pool.Without(p.todo, names.Strings([]string{e.Name}))
	w.owe(e.Revision)
	return p, true
}

// wantsScopes tells whether the proxy has a listener that uses scopes.
func (l *Ledger) wantsScopes() bool { return l.watches[srds].on && l.watches[srds].wild }

// limitOfScopes is the newest revision of which listeners may be sent.
func (l *Ledger) limitOfScopes() model.Revision {
	switch {
	case l.returning && l.scopes.possible || l.scopes.expected || l.mustAsk():
		return 0
	case !l.wantsScopes() || l.watches[srds].answer && !l.scopes.late:
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
	return l.watches[srds].answer && !l.scopes.late && l.floor(lds, false) != always
}

// takesScopes tells whether the proxy is on its way to scopes that it needs: it was sent some, or their
// routes, and has not answered. However slow it is, it does ask for them.
func (l *Ledger) takesScopes() bool {
	flying := l.watches[srds].flight != nil || l.watches[rds].flight != nil || l.watches[vhds].flight != nil
	return flying && l.strategy.Scopes && l.wantsScopes() && l.limitOfScopes() != always
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
	l.scopes.late = l.scopes.late && !l.scopes.led
	l.scopes.impatient = true
	for i := range l.states {
		l.scopes.open[i] = max(l.scopes.open[i], l.watches[srds].acked(i).add)
	}
}
