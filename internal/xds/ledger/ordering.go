package ledger

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// ordering is the state of make-before-break: which clusters listeners and routes still wait for.
type ordering struct {
	// open is the revision up to which a table's clusters are ACKed (or held back), and
	// the endpoints of those that were new are sent.
	open [MaxTables]model.Revision
	// fresh are clusters that were sent by name (on rebinding and reconnecting), whose
	// endpoints must be sent.
	awaited *names.Set
	// untold: the proxy has connected again with clusters that have endpoints, and has not told
	// which of those it has. What it lacks is fresh then.
	endpointsUnknown bool
	// waits are what is known of the endpoints waited for: a table's new clusters', and fresh's.
	failedChecks [MaxTables + 1]endpointWait
}

// endpointWait is a check that failed. It is not repeated until one of the fields differs.
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
	if !c.on || !c.wildcard {
		return always
	}
	if c.toSend != nil || len(c.groups) > 0 || c.flight != nil && c.flight.explicit || l.ordering.awaited != nil || l.ordering.endpointsUnknown {
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

// openOrdering advances the ordering up to the clusters that are ACKed and whose endpoints are
// sent. A proxy processes the responses of a stream in order.
func (l *Ledger) openOrdering() {
	c, g := &l.watches[cds], &l.ordering
	if !c.on || !c.wildcard || len(c.groups) > 0 {
		return
	}
	for i := range l.states {
		for l.openTable(i) { // as far as it goes
		}
	}
	if g.awaited != nil && c.toSend == nil && (c.flight == nil || !c.flight.explicit) && l.endpointsSent(awaitedClusters, 1) {
		g.awaited = nil
	}
}

// openTable advances the ordering for one table. It reports whether it advanced.
func (l *Ledger) openTable(i int) bool {
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

// clustersTaken returns the revision up to which the proxy has a table's clusters. With a trusted
// prefetch this includes clusters in flight.
func (l *Ledger) clustersTaken(i int) model.Revision {
	c := &l.watches[cds]
	if l.prefetch.trusted && c.flight != nil && !c.flight.explicit {
		return c.at[i].add
	}
	return c.acked(i).add
}

// waitFor makes listeners and routes wait for the endpoints of clusters.
func (l *Ledger) waitFor(clusters []string) {
	l.ordering.awaited = l.pool.With(l.ordering.awaited, names.Strings(clusters))
	l.ordering.failedChecks[MaxTables] = endpointWait{}
}

// awaitedClusters is the index of ordering.awaited in ordering.failedChecks.
const awaitedClusters = MaxTables

// endpointsSent reports whether all endpoints that the proxy will have were sent for clusters: those
// that were added to a table after its ordering, up to a revision, or those of awaited. It waits
// neither for the ACK nor for EDS to become idle, as other endpoints may always be in flight.
func (l *Ledger) endpointsSent(slot int, upto model.Revision) bool {
	e, wait := &l.watches[eds], &l.ordering.failedChecks[slot]
	now := endpointWait{upto: upto, seen: l.newest(), of: [2]*names.Set{e.names, l.ordering.awaited}, sent: e.nonce, nacks: l.refused}
	if e.toSend != nil || len(e.groups) > 0 || *wait == now {
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
	if slot == awaitedClusters {
		for name := range l.ordering.awaited.All() {
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

// sentFor reports whether the proxy subscribes to the endpoints of a cluster, and was sent those
// that exist. Endpoints of a cluster that was removed and added again may not be sent yet. Envoy
// does not subscribe to the endpoints of a cluster that it refused.
func (l *Ledger) sentFor(cluster string) bool {
	c, e := &l.watches[cds], &l.watches[eds]
	if c.held[cluster] != nil {
		return true
	}
	for i, s := range l.states {
		if ends := s.Get(resource.Endpoints, cluster); ends != nil && (!e.wildcard && !e.names.Has(cluster) || ends.Added > e.at[i].add) {
			return false
		}
	}
	return true
}

// removable returns the revision up to which removals of a type may be sent: nothing that the
// proxy has refers to what goes. Virtual hosts and endpoints have exceptions, see mustStay.
func (l *Ledger) removable(k kind) model.Revision {
	if k == cds && l.reconnecting {
		return 0
	}
	info, limit := &resource.Types[l.watches[k].typ], always
	for _, t := range info.HeldBy {
		if t == resource.Listener && k != cds {
			limit = min(limit, l.unusedUpTo()) // the listener may wait for routes after its ACK
			continue
		}
		limit = min(limit, l.completeUpTo(kindsOf[t], info.HeldByRefused))
	}
	return limit
}

// mustStay reports whether a removal of the given revision must wait. A virtual host is removed at
// once, unless its route configuration is removed too, which a listener may still use. Endpoints
// are removed at once, unless their cluster or its discovery type is.
func (l *Ledger) mustStay(k kind, name string, rev, removable model.Revision) bool {
	if k == eds && l.watches[cds].held[name] != nil {
		return true // the proxy has an older form of the cluster
	}
	if !exceeds(rev, removable) || k == srds && !l.watches[k].wildcard {
		return false
	}
	switch k {
	case vhds:
		return l.lookup(l.strategy.Routes, table.RouteConfigOf(name)) == nil
	case eds:
		c := l.lookup(resource.Cluster, name)
		return c == nil || exceeds(c.Revision, l.changesCompleteUpTo(cds))
	}
	return true
}

// exceeds reports whether a revision is beyond a limit. The revision always exceeds every limit but
// always.
func exceeds(rev, floor model.Revision) bool { return floor != always && rev > floor }

// completeUpTo returns the revision up to which everything of a type is ACKed or held; always if
// nothing is outstanding. With strict, held resources count as outstanding.
func (l *Ledger) completeUpTo(k kind, strict bool) model.Revision {
	w := &l.watches[k]
	switch {
	case !w.on:
		return always
	case w.firstPending:
		return 0
	}
	floor := min(l.changesCompleteUpTo(k), w.removalsCompleteUpTo(&l.states))
	if w.toRemove != nil {
		floor = min(floor, max(w.pendingSince, 1)-1)
	}
	if strict {
		for _, h := range w.held {
			floor = min(floor, h.since)
		}
	}
	return floor
}

// changesCompleteUpTo is completeUpTo without removals that were not sent.
func (l *Ledger) changesCompleteUpTo(k kind) model.Revision {
	w, floor := &l.watches[k], always
	if !w.on {
		return always
	}
	if w.toSend != nil || len(w.groups) > 0 || w.flight != nil && w.flight.explicit || k == vhds && l.toLoad != nil {
		floor = max(w.pendingSince, 1) - 1
	}
	for i, s := range l.states {
		if c := w.acked(i); s.LastChanged(w.typ) > c.add {
			floor = min(floor, c.firm)
		}
	}
	return floor
}

func (w *watch) removalsCompleteUpTo(states *[MaxTables]*table.State) model.Revision {
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

// orderingBlocks reports whether listeners and routes wait for endpoints of new clusters, on a
// stream that requested endpoints.
func (l *Ledger) orderingBlocks() bool {
	closed := false
	for i, s := range l.states {
		closed = closed || s.LastAdded(resource.Cluster) > l.ordering.open[i]
	}
	return closed && l.watches[cds].wildcard && l.watches[eds].on
}

// StopWaiting ends all waits. It is for proxies that never request the endpoints of their clusters,
// whose listeners would wait forever.
func (l *Ledger) StopWaiting() {
	l.ordering.awaited, l.ordering.endpointsUnknown, l.reconnecting = nil, false, false
	l.stopWaitingForScopes()
	for i := range l.states {
		l.ordering.open[i] = max(l.ordering.open[i], l.watches[cds].acked(i).add)
	}
}

// Waiting reports whether listeners or routes wait for clusters or endpoints, or removals wait for
// the proxy to list its routes. It returns false while the proxy takes scopes.
func (l *Ledger) Waiting() bool {
	if l.takesScopes() {
		return false
	}
	if l.reconnecting || l.orderingBlocks() || l.usesScopes() && l.removesRoutes() && l.awaitsRoutes() {
		return true
	}
	for k := lds; k < kinds; k++ {
		w := &l.watches[k]
		if w.on && w.flight == nil && l.limit(k) != always && (w.firstPending || !l.upToDate(w) || !w.idle()) {
			return true
		}
	}
	return false
}
