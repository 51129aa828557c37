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
		for e := range old.Changed(resource.Cluster, l.gate.open[i]) {
			if e.Added > l.gate.open[i] && e.Added <= c.at[i].add {
				wait = append(wait, e.Name)
			}
		}
	}
	l.waitFor(wait)
	l.gate.waits[i] = endpointWait{}
	l.gate.open[i] = l.states[i].Revision
}

func (l *Ledger) rebindWatch(k kind, i int, old *table.State) {
	w, s := &l.watches[k], l.states[i]
	if l.protocol == Sotw && resource.Types[w.typ].FullState {
		l.rebindWhole(k, i)
		return
	}
	d := &difference{l: l, k: k, had: old, at: w.at[i], has: s}
	if w.answer { // nothing was sent yet
		w.at[i] = fromStart(s)
		l.gateAnew(k, i)
		return
	}
	d.find()
	w.todo = l.pool.With(w.todo, names.Strings(d.todo))
	w.gone = l.pool.With(w.gone, names.Strings(d.gone))
	w.at[i] = upTo(s)
	if w.flight != nil {
		w.flight.from[i], w.flight.explicit = w.at[i], true
	}
	if !w.idle() {
		w.owe(1) // the old tables' revisions say nothing about what is left of them
	}
}

// gateAnew closes the gate for a table whose clusters all are to be sent.
func (l *Ledger) gateAnew(k kind, i int) {
	if k == cds {
		l.gate.open[i] = 0
	}
}

// difference is what a stream needs to get from one table to another.
type difference struct {
	l   *Ledger
	k   kind
	had *table.State
	at  cursor // of what was sent of had
	has *table.State

	todo, gone []string
}

func (d *difference) find() {
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
func (d *difference) compare(name string) {
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
