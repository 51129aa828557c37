package ledger

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// ordering is what listeners and routes wait for: clusters that they may refer to.
type ordering struct {
	// open is the revision up to which a table's clusters are ACKed (or held back), and
	// the endpoints of those that were new are sent.
	open [MaxTables]model.Revision
	// fresh are clusters that were sent by name (on rebinding and reconnecting), whose
	// endpoints must be sent.
	fresh *names.Set
	// untold: the proxy has connected again with clusters that have endpoints, and has not told
	// which of those it has. What it lacks is fresh then.
	untold bool
	// waits are what is known of the endpoints waited for: a table's new clusters', and fresh's.
	waits [MaxTables + 1]endpointWait
}

// endpointWait is a check that failed. It fails again until one of the fields differs.
type endpointWait struct {
	upto  model.Revision // of the clusters that are waited for
	seen  model.Revision
	of    [2]*names.Set
	sent  uint64 // the nonce of the newest response with endpoints
	nacks uint64
}

// limit returns the newest revision of which additions and changes of a type may be sent, by the
// types that it needs; always if nothing has to wait.
func (l *Ledger) limit(k kind) model.Revision {
	limit := always
	for _, t := range resource.Types[l.watches[k].typ].Needs {
		switch t {
		case resource.Cluster:
			limit = min(limit, l.limitOfClusters())
		case resource.Scope:
			if l.strategy.Scopes {
				limit = min(limit, l.limitOfScopes())
			}
		}
	}
	return limit
}

// limitOfClusters returns the newest revision up to which the proxy has all clusters, and was sent
// their endpoints.
func (l *Ledger) limitOfClusters() model.Revision {
	c := &l.watches[cds]
	if !c.on || !c.wild {
		return always
	}
	if c.todo != nil || len(c.groups) > 0 || c.flight != nil && c.flight.explicit || l.ordering.fresh != nil || l.ordering.untold {
		return 0
	}
	limit := always
	for i, s := range l.states {
		if s.LastAdded(resource.Cluster) > l.ordering.open[i] {
			limit = min(limit, l.ordering.open[i])
		}
	}
	return limit
}

// openGate opens the gate as far as clusters are ACKed, and their endpoints sent: a proxy
// takes in order what comes on one stream.
func (l *Ledger) openOrdering() {
	c, g := &l.watches[cds], &l.ordering
	if !c.on || !c.wild || len(c.groups) > 0 {
		return
	}
	for i := range l.states {
		for l.openFor(i) { // as far as it goes
		}
	}
	if g.fresh != nil && c.todo == nil && (c.flight == nil || !c.flight.explicit) && l.endpointsSent(freshClusters, 1) {
		g.fresh = nil
	}
}

// openFor opens the gate for more of one table's clusters.
func (l *Ledger) openFor(i int) bool {
	g, upto := &l.ordering, l.clustersTaken(i)
	switch {
	case upto <= g.open[i]:
		return false
	case l.states[i].LastAdded(resource.Cluster) <= g.open[i]:
		g.open[i] = upto
		return true
	}
	if !l.endpointsSent(i, upto) {
		return false
	}
	g.open[i] = upto
	return true
}

// clustersTaken is the revision up to which the proxy has a table's clusters, or will have
// them and look for their endpoints, which are on their way.
func (l *Ledger) clustersTaken(i int) model.Revision {
	c := &l.watches[cds]
	if l.prefetch.trusted && c.flight != nil && !c.flight.explicit {
		return c.at[i].add
	}
	return c.acked(i).add
}

// waitFor has listeners and routes wait for the endpoints of clusters.
func (l *Ledger) waitFor(clusters []string) {
	l.ordering.fresh = l.pool.With(l.ordering.fresh, names.Strings(clusters))
	l.ordering.waits[MaxTables] = endpointWait{}
}

// freshClusters is the place of gate.fresh among gate.waits.
const freshClusters = MaxTables

// endpointsSent tells whether all endpoints of clusters were sent that the proxy will have: of those
// that came to a table after the gate's revision, up to another, or of fresh ones.
// It does not wait for their ACK, nor for EDS to fall silent: other endpoints may be in
// flight all the time.
func (l *Ledger) endpointsSent(slot int, upto model.Revision) bool {
	e, wait := &l.watches[eds], &l.ordering.waits[slot]
	now := endpointWait{upto: upto, seen: l.newest(), of: [2]*names.Set{e.names, l.ordering.fresh}, sent: e.nonce, nacks: l.refused}
	if e.todo != nil || len(e.groups) > 0 || *wait == now {
		return false
	}
	if !l.allSent(slot, upto) {
		*wait = now
		return false
	}
	*wait = endpointWait{}
	return true
}

func (l *Ledger) allSent(slot int, upto model.Revision) bool {
	if slot == freshClusters {
		for name := range l.ordering.fresh.All() {
			if l.lookup(resource.Cluster, name) != nil && !l.sentFor(name) {
				return false
			}
		}
		return true
	}
	for c := range l.states[slot].Changed(resource.Cluster, l.ordering.open[slot]) {
		if c.Added > l.ordering.open[slot] && c.Added <= upto && !l.sentFor(c.Name) {
			return false
		}
	}
	return true
}

// sentFor tells whether endpoints are subscribed for a cluster of the tables that has some, and were
// sent since they are there: those of a cluster that went and came back may not be yet.
// What Envoy refused it does not subscribe.
func (l *Ledger) sentFor(cluster string) bool {
	c, e := &l.watches[cds], &l.watches[eds]
	if c.held[cluster] != nil {
		return true
	}
	for i, s := range l.states {
		if ends := s.Get(resource.Endpoints, cluster); ends != nil && (!e.wild && !e.names.Has(cluster) || ends.Added > e.at[i].add) {
			return false
		}
	}
	return true
}

// removable returns the revision up to which removals of a type may be sent: nothing that the
// proxy has refers to what goes. Virtual hosts and endpoints have exceptions, see mustStay.
func (l *Ledger) removable(k kind) model.Revision {
	if k == cds && l.returning {
		return 0
	}
	info, limit := &resource.Types[l.watches[k].typ], always
	for _, t := range info.HeldBy {
		if t == resource.Listener && k != cds {
			limit = min(limit, l.unused()) // the listener may wait for routes after its ACK
			continue
		}
		limit = min(limit, l.floor(kindsOf[t], info.HeldByRefused))
	}
	return limit
}

// stays tells whether a removal of the given revision must wait. A virtual host goes at
// once, unless it goes with its route configuration, which a listener may still use; so
// do endpoints, unless they go with their cluster or its way of finding them.
func (l *Ledger) stays(k kind, name string, rev, removable model.Revision) bool {
	if k == eds && l.watches[cds].held[name] != nil {
		return true // the proxy has an older form of the cluster
	}
	if !exceeds(rev, removable) || k == srds && !l.watches[k].wild {
		return false
	}
	switch k {
	case vhds:
		return l.lookup(l.strategy.Routes, table.RouteConfigOf(name)) == nil
	case eds:
		c := l.lookup(resource.Cluster, name)
		return c == nil || exceeds(c.Revision, l.floorOfChanges(cds))
	}
	return true
}

// exceeds tells whether a revision is beyond a floor; always exceeds all but always.
func exceeds(rev, floor model.Revision) bool { return floor != always && rev > floor }

// floor is the revision up to which everything of a type is ACKed or held back; always
// where nothing is outstanding. strict: not what is held back.
func (l *Ledger) floor(k kind, strict bool) model.Revision {
	w := &l.watches[k]
	switch {
	case !w.on:
		return always
	case w.answer:
		return 0
	}
	floor := min(l.floorOfChanges(k), w.floorOfRemovals(&l.states))
	if w.gone != nil {
		floor = min(floor, max(w.owes, 1)-1)
	}
	if strict {
		for _, h := range w.held {
			floor = min(floor, h.since)
		}
	}
	return floor
}

// floorOfChanges is the floor without removals that were not sent yet.
func (l *Ledger) floorOfChanges(k kind) model.Revision {
	w, floor := &l.watches[k], always
	if !w.on {
		return always
	}
	if w.todo != nil || len(w.groups) > 0 || w.flight != nil && w.flight.explicit || k == vhds && l.load != nil {
		floor = max(w.owes, 1) - 1
	}
	for i, s := range l.states {
		if c := w.acked(i); s.LastChanged(w.typ) > c.add {
			floor = min(floor, c.firm)
		}
	}
	return floor
}

func (w *watch) floorOfRemovals(states *[MaxTables]*table.State) model.Revision {
	floor := always
	for i, s := range states {
		c := w.acked(i)
		if s.LastRemoved(w.typ) > c.rem {
			floor = min(floor, c.rem)
		}
		if c.wait > 0 {
			floor = min(floor, c.wait-1)
		}
	}
	return floor
}

// gateClosed tells whether endpoints of new clusters are waited for, of a proxy that
// asks for endpoints at all.
func (l *Ledger) orderingBlocks() bool {
	closed := false
	for i, s := range l.states {
		closed = closed || s.LastAdded(resource.Cluster) > l.ordering.open[i]
	}
	return closed && l.watches[cds].wild && l.watches[eds].on
}

// StopWaiting opens the gate for what it waits for. It is for proxies that never ask
// for endpoints of clusters that they have: they must not wait for ever.
func (l *Ledger) StopWaiting() {
	l.ordering.fresh, l.ordering.untold, l.returning = nil, false, false
	l.stopWaitingForScopes()
	for i := range l.states {
		l.ordering.open[i] = max(l.ordering.open[i], l.watches[cds].acked(i).add)
	}
}

// Waiting tells whether listeners or routes could be sent but wait for clusters or
// endpoints, or removals for the proxy to say what routes it has; not while it takes scopes.
func (l *Ledger) Waiting() bool {
	if l.takesScopes() {
		return false
	}
	if l.returning || l.orderingBlocks() || l.usesScopes() && l.removesRoutes() && l.awaitsRoutes() {
		return true
	}
	for k := lds; k < kinds; k++ {
		w := &l.watches[k]
		if w.on && w.flight == nil && l.limit(k) != always && (w.answer || !l.upToDate(w) || !w.idle()) {
			return true
		}
	}
	return false
}
