package ledger

import (
	"slices"

	"github.com/moonsail/moonsail/internal/base/defect"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// limit returns the newest revision of which additions and changes of a type may be sent, by the
// types that it needs; always if nothing has to wait.
func (l *Ledger) limit(k kind) model.Revision {
	limit := always
	if defect.EarlyRoutes.On() {
		return limit
	}
	for _, t := range resource.Types[l.watches[k].typ].Needs {
		switch t {
		case resource.Cluster:
			limit = min(limit, l.ordering.limit())
		case resource.Scope:
			if l.strategy.Scopes {
				limit = min(limit, l.scopes.limit())
			}
		}
	}
	return limit
}

// removable returns the revision up to which removals of a type may be sent: nothing that the
// proxy has refers to what is removed. Virtual hosts and endpoints have exceptions, see mustStay.
func (l *Ledger) removable(k kind) model.Revision {
	if k == cds && defect.EarlyRemoval.On() {
		return always
	}
	if k == cds && l.reconnecting {
		return 0
	}
	info, limit := &resource.Types[l.watches[k].typ], always
	for _, t := range info.HeldBy {
		if t == resource.Listener && k != cds {
			limit = min(limit, l.scopes.unusedUpTo()) // the listener may wait for routes after its ACK
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
		if c == nil && l.removable(cds) == always && l.watches[cds].unansweredSends(name) {
			return false // nothing refers to the cluster, and it may wait for endpoints, which delays the ACK of all clusters
		}
		return c == nil || exceeds(c.Revision, l.changesCompleteUpTo(cds))
	}
	return true
}

// changesClusters reports whether clusters are to be sent.
func (st *streamState) changesClusters() bool {
	c := &st.watches[cds]
	return c.on && (c.toSend != nil || len(c.groups) > 0 || !st.upToDate(c))
}

// changesCluster reports whether a cluster is to be sent that the proxy has, as far as it subscribes to its endpoints.
func (st *streamState) changesCluster(name string) bool {
	c := &st.watches[cds]
	if !c.on || c.toSend.Has(name) || c.inGroups(name) {
		return c.on
	}
	for i, s := range st.states {
		if e := s.Get(resource.Cluster, name); e != nil && e.Revision > c.at[i].add {
			return st.subscribes(cds, name) && st.carries(cds, e)
		}
	}
	return false
}

// ordering is the state of make-before-break: which clusters listeners and routes still wait for.
type ordering struct {
	*streamState

	// open is the revision up to which a table's clusters are ACKed (or held back), and the
	// endpoints of those that were new are sent.
	open [MaxTables]model.Revision
	// awaited are clusters that were sent by name (on rebinding and reconnecting), whose endpoints
	// must be sent.
	awaited *names.Set
	// endpointsUnknown: the proxy connected again with clusters that have endpoints, and has not
	// listed the endpoints that it has. Those that it lacks are awaited then.
	endpointsUnknown bool
	// failedChecks are the last checks for endpoints that failed: of each table's new clusters, and
	// of awaited.
	failedChecks [MaxTables + 1]endpointCheck
}

// awaitedClusters is the index of ordering.awaited in ordering.failedChecks.
const awaitedClusters = MaxTables

// endpointCheck is a check that failed. It is not repeated until one of the fields differs.
type endpointCheck struct {
	upto       model.Revision // of the clusters that are waited for
	newest     model.Revision // of the tables
	subscribed *names.Set     // endpoints
	awaited    *names.Set
	nonce      uint64 // of the newest response with endpoints
	refused    uint64 // NACKs
}

// limit returns the newest revision up to which the proxy has all clusters, and was sent their
// endpoints.
func (o *ordering) limit() model.Revision {
	c := &o.watches[cds]
	if !c.on || !c.wildcard {
		return always
	}
	if c.toSend != nil || len(c.groups) > 0 || o.awaitsNamed() || o.awaited != nil || o.endpointsUnknown {
		return 0
	}
	return o.openUpTo()
}

// advance moves the ordering up to the clusters that are ACKed and whose endpoints are sent. A proxy
// processes the responses of a stream in order. With a trusted prefetch, or if their answer is late,
// clusters in flight count like ACKed ones.
func (o *ordering) advance(trusted bool) {
	c := &o.watches[cds]
	if !c.on || !c.wildcard || len(c.groups) > 0 {
		return
	}
	for i := range o.states {
		upto := o.processed(i, trusted)
		if upto > o.open[i] && (o.states[i].LastAdded(resource.Cluster) <= o.open[i] || o.endpointsSent(i, upto)) {
			o.open[i] = upto
		}
	}
	if o.awaited != nil && c.toSend == nil && !o.awaitsNamed() && o.endpointsSent(awaitedClusters, 1) {
		o.awaited = nil
	}
}

// awaitsNamed reports whether clusters that were sent by name are not answered yet, and their answer is not late.
func (o *ordering) awaitsNamed() bool {
	c := &o.watches[cds]
	return o.waitsForAnswer(c) && c.flight.explicit
}

// waitFor makes listeners and routes wait for the endpoints of clusters.
func (o *ordering) waitFor(clusters []string) {
	o.awaited = o.pool.With(o.awaited, names.Strings(clusters))
	o.failedChecks[awaitedClusters] = endpointCheck{}
}

// endpointsSent reports whether all endpoints that the proxy will have were sent for clusters: those
// that were added to a table after its ordering, up to a revision, or those of awaited. It waits
// neither for the ACK nor for EDS to become idle, as other endpoints may always be in flight.
func (o *ordering) endpointsSent(slot int, upto model.Revision) bool {
	e, failed := &o.watches[eds], &o.failedChecks[slot]
	if e.toSend != nil || len(e.groups) > 0 {
		return false
	}
	check := endpointCheck{upto: upto, newest: o.newest(), subscribed: e.names, awaited: o.awaited, nonce: e.nonce, refused: o.refused}
	if *failed == check {
		return false
	}
	if !o.allSent(slot, upto) {
		*failed = check
		return false
	}
	*failed = endpointCheck{}
	return true
}

// allSent is endpointsSent without the shortcut.
func (o *ordering) allSent(slot int, upto model.Revision) bool {
	if slot == awaitedClusters {
		for name := range o.awaited.All() {
			if o.lookup(resource.Cluster, name) != nil && !o.sentFor(name) {
				return false
			}
		}
		return true
	}
	for c := range o.states[slot].Changed(resource.Cluster, o.open[slot]) {
		if c.Added > o.open[slot] && c.Added <= upto && o.carries(cds, c) && !o.sentFor(c.Name) {
			return false
		}
	}
	return true
}

// sentFor reports whether the proxy subscribes to the endpoints of a cluster, and was sent those
// that exist. Endpoints of a cluster that was removed and added again may not be sent yet. Envoy
// does not subscribe to the endpoints of a cluster that it refused.
func (o *ordering) sentFor(cluster string) bool {
	c, e := &o.watches[cds], &o.watches[eds]
	if c.held[cluster] != nil {
		return true
	}
	for i, s := range o.states {
		if ends := s.Get(resource.Endpoints, cluster); ends != nil && (!e.wildcard && !e.names.Has(cluster) || ends.Added > e.at[i].add) {
			return false
		}
	}
	return true
}

// blocks reports whether listeners and routes wait for endpoints of new clusters, on a stream that
// requested endpoints.
func (o *ordering) blocks() bool {
	blocked := false
	for i, s := range o.states {
		blocked = blocked || s.LastAdded(resource.Cluster) > o.open[i]
	}
	return blocked && o.watches[cds].wildcard && o.watches[eds].on
}

// openUpTo returns the oldest revision up to which the ordering of a table that blocks is open;
// always if none blocks.
func (o *ordering) openUpTo() model.Revision {
	floor := always
	for i, s := range o.states {
		if s.LastAdded(resource.Cluster) > o.open[i] {
			floor = min(floor, o.open[i])
		}
	}
	return floor
}

// stopWaiting opens the ordering for everything that the proxy has.
func (o *ordering) stopWaiting() {
	o.awaited, o.endpointsUnknown = nil, false
	for i := range o.states {
		o.open[i] = max(o.open[i], o.processed(i, false))
	}
}

// rebind binds the ordering to another table in place i, of which the proxy has nothing to wait for.
// It carries over the clusters of the old table that listeners and routes still wait for.
func (o *ordering) rebind(i int, old *table.State) {
	c := &o.watches[cds]
	var wait []string
	if c.on && c.wildcard {
		for e := range old.Changed(resource.Cluster, o.open[i]) {
			if e.Added > o.open[i] && e.Added <= c.at[i].add && o.carries(cds, e) {
				wait = append(wait, e.Name)
			}
		}
	}
	o.waitFor(wait)
	o.failedChecks[i] = endpointCheck{}
	o.open[i] = o.states[i].Revision
}

// Missing returns at most n clusters whose endpoints listeners and routes wait for: the proxy did
// not request them, or was not sent them.
func (l *Ledger) Missing(n int) []string {
	if !l.watches[cds].on || !l.watches[cds].wildcard {
		return nil
	}
	var out []string
	look := func(cluster string) bool {
		exists := l.lookup(resource.Endpoints, cluster) != nil && l.watches[cds].held[cluster] == nil
		if s := l.Status(resource.Endpoints, cluster); exists && s != Has && s != Refused && !slices.Contains(out, cluster) {
			out = append(out, cluster)
		}
		return len(out) < n
	}
	for i, s := range l.states {
		open := l.ordering.open[i]
		if l.ordering.endpointsUnknown {
			open = 0
		}
		for c := range s.Changed(resource.Cluster, open) {
			if c.Added > open && l.carries(cds, c) && !look(c.Name) {
				return out
			}
		}
	}
	for cluster := range l.ordering.awaited.All() {
		if !look(cluster) {
			return out
		}
	}
	return out
}
