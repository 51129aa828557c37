package ledger

import (
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// rebind takes the stream to other tables. What the proxy has is known from the old
// tables and the cursors; what differs becomes names to be sent or removed.
func (l *Ledger) rebind(next [MaxTables]*table.State) {
	old := l.states
	l.states = next
	l.scopes.anew = true
	for i := range next {
		if next[i].Table() == old[i].Table() {
			continue
		}
		l.keepWaiting(i, old[i])
		for k := range kinds {
			if l.watches[k].on {
				l.rebindWatch(k, i, old[i])
			}
		}
	}
}

// keepWaiting carries over the old table's clusters that listeners and routes still wait for.
func (l *Ledger) keepWaiting(i int, old *table.State) {
	c := &l.watches[cds]
	var wait []string
	if c.on && c.wild {
		for e := range old.Changed(resource.Cluster, l.ordering.open[i]) {
			if e.Added > l.ordering.open[i] && e.Added <= c.at[i].add {
				wait = append(wait, e.Name)
			}
		}
	}
	l.waitFor(wait)
	l.ordering.waits[i] = endpointWait{}
	l.ordering.open[i] = l.states[i].Revision
}

func (l *Ledger) rebindWatch(k kind, i int, old *table.State) {
	w, s := &l.watches[k], l.states[i]
	if l.protocol == Sotw && resource.Types[w.typ].FullState {
		l.rebindWhole(k, i)
		return
	}
	if w.answer { // nothing was sent yet
		w.at[i] = fromStart(s)
		l.reorder(k, i)
		return
	}
	d := l.difference(k, i, old)
	w.todo = l.pool.Union(w.todo, d.todo)
	w.gone = l.pool.Union(w.gone, d.gone)
	w.at[i] = upTo(s)
	if w.flight != nil {
		w.flight = w.flight.own()
		w.flight.from[i], w.flight.explicit = w.at[i], true
	}
	if !w.idle() {
		w.owe(1) // the old tables' revisions say nothing about what is left of them
	}
}

// gateAnew closes the gate for a table whose clusters all are to be sent.
func (l *Ledger) reorder(k kind, i int) {
	if k == cds {
		l.ordering.open[i] = 0
	}
}

// difference is what a stream needs to get from one table to another: what is to be sent
// and what is to be removed.
type difference struct{ todo, gone *names.Set }

// situation is all that a difference depends on.
type situation struct {
	k      kind
	had    *table.State
	at     cursor // of what was sent of had
	i      int    // has is the table in this place
	states [MaxTables]*table.State
	wild   bool
	names  *names.Set // by name
	synced *names.Set // of virtual hosts: by route configuration
}

// difference is found once for all streams in the same situation: those that a changed
// Sidecar takes from one scope to another.
func (l *Ledger) difference(k kind, i int, had *table.State) difference {
	w := &l.watches[k]
	key := situation{k: k, had: had, at: w.at[i], i: i, states: l.states, wild: w.wild, names: w.names}
	if k == vhds {
		key.synced = l.synced
	}
	return l.states[i].Memo(key, func() any {
		c := &comparison{l: l, k: k, had: had, at: w.at[i], has: l.states[i]}
		c.find()
		return difference{l.pool.Of(c.todo...), l.pool.Of(c.gone...)}
	}).(difference)
}

// comparison is the work on a difference.
type comparison struct {
	l   *Ledger
	k   kind
	had *table.State
	at  cursor
	has *table.State

	todo, gone []string
}

func (d *comparison) find() {
	w := &d.l.watches[d.k]
	if d.k != vhds && !w.wild {
		for n := range w.names.All() {
			d.compare(n)
		}
		return
	}
	for e := range d.had.All(w.typ) {
		d.compare(e.Name)
	}
	for n := range d.had.Removed(w.typ, d.at.rem) {
		d.compare(n)
	}
	for e := range d.has.All(w.typ) {
		if d.had.Get(w.typ, e.Name) == nil {
			d.compare(e.Name)
		}
	}
}

// compare decides on one name. What came after the cursor the proxy may have or not: it
// is sent, or removed, to be sure.
func (d *comparison) compare(name string) {
	t := d.l.watches[d.k].typ
	if !d.l.subscribes(d.k, name) {
		return
	}
	had, has := d.had.Get(t, name), d.l.lookup(t, name)
	switch {
	case has == nil && had == nil && d.k != vhds && !d.l.watches[d.k].wild: // a name that never existed
	case has == nil:
		d.gone = append(d.gone, name)
	case had == nil && d.has.Get(t, name) == nil: // the other table's
	case had == nil || had.Revision > d.at.add || had.Version != has.Version:
		d.todo = append(d.todo, name)
	}
}
