package ledger

import (
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// rebind binds the stream to other tables. The old tables and the cursors describe what the proxy
// has; the differences become names to send or remove.
func (l *Ledger) rebind(next [MaxTables]*table.State) {
	old, was := l.states, l.carriage
	l.states = next
	l.scopes.recheck = true
	if next[0].Table() != old[0].Table() {
		l.carryOver(old[0], next[0])
	}
	for i := range next {
		if next[i].Table() == old[i].Table() {
			l.carrySent(i, old[i], next[i])
			continue
		}
		l.ordering.rebind(i, old[i])
		for k := range kinds {
			if l.watches[k].on {
				l.rebindWatch(k, i, old[i], was)
			}
		}
	}
}

// rebindWatch turns the differences between two tables into names to send or remove.
func (l *Ledger) rebindWatch(k kind, i int, old *table.State, was carriage) {
	w, s := &l.watches[k], l.states[i]
	if l.fullState(w) {
		l.rebindWhole(k, i)
		return
	}
	if w.firstPending { // nothing was sent yet
		w.at[i] = fromStart(s)
		l.reorder(k, i)
		return
	}
	d := l.difference(k, i, old, was)
	if k == eds {
		l.postponed = l.pool.Union(l.postponed, l.pool.Minus(d.toSend, w.toSend))
	}
	w.toSend = l.pool.Union(w.toSend, d.toSend)
	w.toRemove = l.pool.Union(w.toRemove, d.toRemove)
	w.at[i] = upTo(s)
	w.restart(i)
	if !w.idle() {
		w.notePending(1) // revisions of the old table do not apply to its remains
	}
}

// reorder resets the ordering of a table whose clusters are all to be sent.
func (l *Ledger) reorder(k kind, i int) {
	if k == cds {
		l.ordering.open[i] = 0
	}
}

// difference has the names that a stream must send and remove to change from one table to another.
type difference struct{ toSend, toRemove *names.Set }

// situation is everything that a difference depends on.
type situation struct {
	k        kind
	typ      resource.Type // route configurations have two forms
	had      *table.State
	at       cursor // what was sent of had
	i        int    // place of the table that replaces it
	states   [MaxTables]*table.State
	wildcard bool
	names    *names.Set // named subscriptions
	synced   *names.Set // of virtual hosts: route configurations
	was, now carriage   // of clusters
}

// difference is computed once for all streams in the same situation, such as those whose Sidecar
// changed.
func (l *Ledger) difference(k kind, i int, had *table.State, was carriage) difference {
	w := &l.watches[k]
	key := situation{k: k, typ: w.typ, had: had, at: w.at[i], i: i, states: l.states, wildcard: w.wildcard, names: w.names}
	if k == vhds {
		key.synced = l.synced
	}
	if k == cds {
		key.was, key.now = was, l.carriage
	}
	return l.states[i].Memo(key, func() any {
		c := &comparison{l: l, k: k, had: had, at: w.at[i], has: l.states[i], was: was}
		c.find()
		return difference{l.pool.Of(c.toSend...), l.pool.Of(c.toRemove...)}
	}).(difference)
}

// comparison computes a difference.
type comparison struct {
	l   *Ledger
	k   kind
	had *table.State
	at  cursor
	has *table.State
	was carriage // of clusters

	toSend, toRemove []string
}

func (d *comparison) find() {
	w := &d.l.watches[d.k]
	if d.k != vhds && !w.wildcard {
		for n := range w.names.All() {
			d.compare(n)
		}
		return
	}
	for e := range d.had.All(w.typ) {
		d.compare(e.Name)
	}
	for n := range d.was.removed(d.k, w.typ, d.had, d.at.rem) {
		d.compare(n)
	}
	for e := range d.has.All(w.typ) {
		if d.had.Get(w.typ, e.Name) == nil {
			d.compare(e.Name)
		}
	}
}

// compare decides about one name. The proxy may or may not have what came after the cursor: such a
// resource is sent or removed.
func (d *comparison) compare(name string) {
	t := d.l.watches[d.k].typ
	if !d.l.subscribes(d.k, name) {
		return
	}
	had, has := d.had.Get(t, name), d.l.lookup(t, name)
	switch {
	case has != nil && !d.l.carries(d.k, has): // the proxy has it only if it asked for it
	case has == nil && had != nil && !d.was.carries(d.k, had):
	case has == nil && had == nil && d.k != vhds && !d.l.watches[d.k].wildcard: // a name that never existed
	case has == nil:
		d.toRemove = append(d.toRemove, name)
	case had == nil && d.has.Get(t, name) == nil: // the other table's
	case had == nil || had.Revision > d.at.add || had.Version != has.Version:
		d.toSend = append(d.toSend, name)
	}
}
