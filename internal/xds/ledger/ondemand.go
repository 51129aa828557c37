package ledger

import (
	"iter"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// A proxy that gets clusters on demand has two streams. The stream of everything carries the clusters that must precede
// what refers to them, and few others: those of carried. Its ledger is partial. On the other stream the proxy asks for
// clusters by name. A request that needs such a cluster waits for it, so that nothing else has to.

// NewAsked is New for the stream on which a proxy asks for clusters by name.
func NewAsked(strategy *Strategy, pool *names.Pool, states []*table.State) *Ledger {
	l := New(Delta, strategy, pool, states)
	l.asked, l.partial = true, false
	return l
}

// replaceRefused schedules the removal of refused clusters of which the proxy has no form. The proxy asks for a name only
// once, and would make requests wait for the cluster. The server replaces what is removed by a cluster without endpoints,
// so that they fail at once.
func (l *Ledger) replaceRefused() {
	if !l.asked {
		return
	}
	w := &l.watches[cds]
	var lacks []string
	for name := range w.held {
		if !l.granted.Has(name) {
			lacks = append(lacks, name)
		}
	}
	if w.toRemove = l.pool.With(w.toRemove, names.Strings(lacks)); lacks != nil {
		w.notePending(l.newest())
	}
}

// refusedAsked reports whether a name that exists is replaced because the proxy refused it.
func (l *Ledger) refusedAsked(w *watch, name string) bool {
	e := l.lookup(w.typ, name)
	return l.asked && e != nil && w.holds(e) && !l.granted.Has(name)
}

// grant records clusters that the proxy has some form of, or the replacement. Only names that it subscribes to count, so
// the bound of subscriptions applies to granted too. The function changes the list.
func (st *streamState) grant(list []string) {
	list = slices.DeleteFunc(list, func(n string) bool { return !st.watches[cds].names.Has(n) })
	st.granted = st.pool.With(st.granted, names.Strings(list))
}

// carriage is which clusters a stream carries.
type carriage struct {
	partial bool       // those on demand only if carried has them
	carried *names.Set // nil without partial
}

// carries reports whether a resource of a type is sent to a proxy that subscribes to the whole type.
func (c *carriage) carries(k kind, e *table.Entry) bool {
	return k != cds || !c.partial || !e.IsOnDemand() || c.carried.Has(e.Name)
}

// removed returns the names of a type that were removed from a table after a revision. Clusters on demand that the
// stream does not carry do not count.
func (c *carriage) removed(k kind, t resource.Type, s *table.State, after model.Revision) iter.Seq2[string, model.Revision] {
	return s.RemovedCarried(t, after, k == cds && c.partial, c.carried)
}

// Carry makes the stream carry clusters on demand from its beginning. It must be called before the first request, and has
// no effect on a proxy that lists what it has: that one asks for what it lacks.
func (l *Ledger) Carry(clusters ...string) {
	if l.partial {
		l.carried = l.pool.Of(clusters...)
	}
}

// carryListed keeps clusters on demand that the stream carried before the proxy connected again.
func (st *streamState) carryListed(list []NameVersion) {
	var listed []string
	for _, nv := range list {
		if e := st.lookupBytes(resource.Cluster, nv.Name); e != nil && e.IsOnDemand() {
			listed = append(listed, e.Name)
		}
	}
	st.carried = st.pool.Of(listed...)
}

// carrySent carries clusters that are on demand in the next state of table i, and that the proxy may have from this stream:
// they were not on demand before, or their removal waits. Envoy does not ask for what it has.
func (st *streamState) carrySent(i int, old, next *table.State) {
	w := &st.watches[cds]
	if !st.partial || !w.on || w.firstPending {
		return
	}
	key := carrying{after: old.Revision, removed: w.at[i].rem, carried: st.carried}
	if next.LastAdded(resource.Cluster) > old.Revision {
		key.toRemove = w.toRemove
	}
	if key.toRemove == nil && next.LastMadeOnDemand() <= old.Revision {
		return
	}
	st.carried = next.Memo(key, func() any {
		list := next.MadeOnDemand(key.after, key.removed)
		for name := range key.toRemove.All() {
			list = appendOnDemand(list, next, name)
		}
		return st.pool.With(key.carried, names.Strings(list))
	}).(*names.Set)
}

// carrying is everything that the result of carrySent depends on.
type carrying struct {
	after, removed    model.Revision
	carried, toRemove *names.Set
}

// carryNamed carries the clusters on demand of a response that were selected by name.
func (st *streamState) carryNamed(f *flight) {
	if !st.partial || !f.explicit {
		return
	}
	var fresh []string
	for e := range f.entries() {
		if !st.carries(cds, e) {
			fresh = append(fresh, e.Name)
		}
	}
	st.carried = st.pool.With(st.carried, names.Strings(fresh))
}

// appendOnDemand appends a name if it is a cluster on demand.
func appendOnDemand(to []string, s *table.State, name string) []string {
	if e := s.Get(resource.Cluster, name); e != nil && e.IsOnDemand() {
		to = append(to, name)
	}
	return to
}

// carryOver keeps the clusters that a stream carried of another table, and that are on demand in the new one.
func (st *streamState) carryOver(old, next *table.State) {
	was, w := st.carriage, &st.watches[cds]
	st.partial = !st.asked && st.protocol == Delta && next.Table().OnDemand()
	if !st.partial {
		st.carried = nil
		return
	}
	var keep []string
	for e := range old.All(resource.Cluster) {
		if was.carries(cds, e) {
			keep = appendOnDemand(keep, next, e.Name)
		}
	}
	if w.on { // those whose removal waits
		for name := range was.removed(cds, resource.Cluster, old, w.at[0].rem) {
			keep = appendOnDemand(keep, next, name)
		}
		for name := range w.toRemove.All() {
			keep = appendOnDemand(keep, next, name)
		}
	}
	st.carried = st.pool.Of(keep...)
}
