package ledger

import (
	"cmp"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// planRemoved takes removals after the cursors, up to the first that must wait. A virtual
// host beyond limit waits for those that are added with it: one may take its place. One that
// waits for its route configuration to go does not keep others waiting: they may have the
// domains of those that are added now, and Envoy refuses two of one domain.
func (l *Ledger) planRemoved(k kind, limit model.Revision, p *plan) {
	w := &l.watches[k]
	if l.removed(w, p) {
		later := l.planRemovals(k, limit, p)
		p.gone = l.pool.With(p.gone, names.Strings(later))
		return
	}
	for i, s := range l.states {
		p.at[i].rem, p.at[i].wait = max(p.at[i].rem, s.Revision), l.waitsStill(w, i, p)
	}
}

// waitsStill gives a table's cursor.wait where nothing waits that was removed since.
func (l *Ledger) waitsStill(w *watch, i int, p *plan) model.Revision {
	if l.states[i].LastChanged(w.typ) > p.at[i].add {
		return w.at[i].wait // it may be there again, and its new form has to wait
	}
	return 0
}

// planRemovals gives the virtual hosts that wait for their route configuration.
func (l *Ledger) planRemovals(k kind, limit model.Revision, p *plan) (later []string) {
	w, removable := &l.watches[k], l.removable(k)
	for i, s := range l.states {
		if s.LastRemoved(w.typ) > p.at[i].rem && s.Forgotten(w.typ) > p.at[i].rem {
			l.forgotten(k, p)
		}
		next, wait := max(p.at[i].rem, s.Revision), l.waitsStill(w, i, p)
		for name, rev := range s.Removed(w.typ, p.at[i].rem) {
			stays := l.stays(k, name, rev, removable)
			if stays && k == vhds && rev <= limit {
				w.owe(max(cmp.Or(w.at[i].wait, w.at[i].firm), 1))
				later = append(later, name)
				continue
			}
			if stays || k == vhds && rev > limit {
				next = rev - 1
				wait = max(cmp.Or(w.at[i].wait, w.at[i].firm), 1)
				break
			}
			if l.subscribes(k, name) && l.lookup(w.typ, name) == nil {
				p.removed = append(p.removed, name)
			}
		}
		p.at[i].rem, p.at[i].wait = next, wait
	}
	return later
}

// removed tells whether the tables have removals after the plan's cursors.
func (l *Ledger) removed(w *watch, p *plan) bool {
	for i, s := range l.states {
		if s.LastRemoved(w.typ) > p.at[i].rem {
			return true
		}
	}
	return false
}

// forgotten deals with removals that the table no longer knows: of what is subscribed by
// name it can be seen what is not there, of everything it cannot.
func (l *Ledger) forgotten(k kind, p *plan) {
	w := &l.watches[k]
	if l.protocol == Sotw {
		return
	}
	if w.wild {
		l.err = ErrBehind
		return
	}
	var lost []string
	for n := range w.names.All() {
		if l.lookup(w.typ, n) == nil {
			lost = append(lost, n)
		}
	}
	p.gone = l.pool.With(p.gone, names.Strings(lost))
}

// planGone removes what went, where it may go; virtual hosts together with those that are
// added.
func (l *Ledger) planGone(k kind, limit model.Revision, p *plan) {
	if p.gone == nil {
		return
	}
	w := &l.watches[k]
	removable := l.removable(k)
	var back, wait []string
	for n := range p.gone.All() {
		switch {
		case slices.Contains(p.removed, n):
		case k == vhds && !l.subscribes(k, n) && l.comes(table.RouteConfigOf(n)):
			wait = append(wait, n) // until the route configuration is there again
		case l.lookup(w.typ, n) != nil:
			back = append(back, n)
		case !l.subscribes(k, n) && !l.drains(k, n):
		case k == vhds && limit != always || l.stays(k, n, always, removable):
			wait = append(wait, n)
		default:
			p.removed = append(p.removed, n)
			p.explicit = true
		}
	}
	p.gone = l.pool.Of(wait...)
	p.todo = l.pool.With(p.todo, names.Strings(back))
}

// comes tells whether a route configuration that the proxy does not hold will be sent.
func (l *Ledger) comes(rc string) bool {
	return l.watches[rds].names.Has(rc) && l.lookup(l.strategy.Routes, rc) != nil
}

// drains tells whether a virtual host is of a route configuration that is no more, but that
// the proxy asks for: a listener that drains may keep it, and another take it over.
func (l *Ledger) drains(k kind, name string) bool {
	return k == vhds && l.watches[rds].names.Has(table.RouteConfigOf(name))
}
