package ledger

import (
	"cmp"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// plan is a response in the making, and the watch's state once it is sent.
type plan struct {
	parts      [4]*table.Batch // each table's, then loaded virtual hosts of each
	removed    []string
	at         [MaxTables]cursor
	todo, gone *names.Set
	load       *names.Set // route configurations still to be loaded
	explicit   bool
}

func (l *Ledger) newPlan(w *watch) *plan {
	return &plan{at: w.at, todo: w.todo, gone: w.gone, load: l.load}
}

func (p *plan) empty() bool {
	return p.parts == [4]*table.Batch{} && len(p.removed) == 0
}

// compose makes the next response of a type, if there is one. Where nothing needs to be
// sent it moves the cursors.
func (l *Ledger) compose(k kind) (Response, bool) {
	w, limit := &l.watches[k], l.limit(k)
	for len(w.groups) > 0 {
		p := l.planGroup(k, limit)
		w.groups, w.todo, w.gone = w.groups[1:], p.todo, p.gone
		if !p.empty() {
			return l.launch(k, p), true
		}
	}
	if k == lds && limit != always && !w.answer {
		if p, ok := l.planScopesListener(); ok {
			return l.launch(k, p), true
		}
	}
	if w.answer && limit != always || k == srds && l.scopesWait() {
		return Response{}, false // the first answer must be whole
	}
	if l.upToDate(w) && w.idle() && !w.answer && (k != vhds || l.load == nil) {
		l.rest(w)
		return Response{}, false
	}
	p := l.newPlan(w)
	if l.protocol == Sotw && resource.Types[w.typ].FullState {
		return l.composeWhole(k)
	}
	l.planChanged(k, limit, p)
	l.planRemoved(k, limit, p)
	l.planTodo(k, limit, p)
	l.planGone(k, limit, p)
	if k == vhds && limit == always {
		l.planLoad(p)
	}
	l.holdBack(w, p)
	if l.protocol == Sotw {
		p.removed = nil
	}
	if p.empty() && !w.answer {
		w.at, w.todo, w.gone = p.at, p.todo, p.gone
		l.rest(w)
		return Response{}, false
	}
	if l.protocol == Sotw {
		w.version = contentVersion(p.parts)
	}
	return l.launch(k, p), true
}

// upToDate tells that the tables have nothing after the cursors.
func (l *Ledger) upToDate(w *watch) bool {
	for i, s := range l.states {
		if s.LastChanged(w.typ) > w.at[i].add || s.LastRemoved(w.typ) > w.at[i].rem {
			return false
		}
	}
	return true
}

// rest moves the cursors of a watch that has nothing to send to the newest revision that
// it has nothing to send of.
func (l *Ledger) rest(w *watch) {
	if w.idle() {
		w.owes = 0
	}
	for i, s := range l.states {
		if s.LastChanged(w.typ) <= w.at[i].add {
			w.at[i].add = max(w.at[i].add, s.Revision)
			w.at[i].firm = w.at[i].add
		}
		if s.LastRemoved(w.typ) <= w.at[i].rem {
			w.at[i].rem = max(w.at[i].rem, s.Revision)
		}
	}
}

// planChanged takes what came after the cursors, up to limit.
func (l *Ledger) planChanged(k kind, limit model.Revision, p *plan) {
	w := &l.watches[k]
	set, none := l.filter(k)
	for i, s := range l.states {
		upto := min(limit, s.Revision)
		if upto <= p.at[i].add {
			continue
		}
		if s.LastChanged(w.typ) > p.at[i].add && !none {
			sel := table.Selection{Type: w.typ, After: p.at[i].add, Upto: always, Names: set}
			if limit < s.Revision {
				sel.Upto = limit
			}
			p.parts[i] = nonEmpty(s.Select(sel))
		}
		p.at[i].add = upto
		if s.LastChanged(w.typ) <= upto {
			p.at[i].firm = upto
		}
	}
}

func nonEmpty(b *table.Batch) *table.Batch {
	if len(b.Entries) == 0 {
		return nil
	}
	return b
}

// planRemoved takes removals after the cursors, up to the first that must wait. A virtual
// host beyond limit waits for those that are added with it: one may take its place. One that
// waits for its route configuration to go does not keep others waiting: they may have the
// domains of those that are added now, and Envoy refuses two of one domain.
func (l *Ledger) planRemoved(k kind, limit model.Revision, p *plan) {
	w := &l.watches[k]
	removable := model.Revision(0)
	if l.removed(w, p) {
		removable = l.removable(k)
	}
	var later []string
	for i, s := range l.states {
		if s.LastRemoved(w.typ) > p.at[i].rem && s.Forgotten(w.typ) > p.at[i].rem {
			l.forgotten(k, p)
		}
		next := max(p.at[i].rem, s.Revision)
		wait := model.Revision(0)
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
		if wait == 0 && s.LastChanged(w.typ) > p.at[i].add {
			wait = w.at[i].wait // it may be there again, and its new form has to wait
		}
		p.at[i].rem, p.at[i].wait = next, wait
	}
	p.gone = l.pool.With(p.gone, names.Strings(later))
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

// planTodo takes the names of todo that may go.
func (l *Ledger) planTodo(k kind, limit model.Revision, p *plan) {
	w := &l.watches[k]
	if p.todo == nil {
		return
	}
	set, rest := p.todo, []string(nil)
	if k == vhds {
		set = l.pool.Without(set, names.Strings(l.notSynced(set)))
	}
	if limit != always {
		for n := range p.todo.All() {
			if e := l.lookup(w.typ, n); e != nil && e.Revision > limit {
				rest = append(rest, n)
			}
		}
		set = l.pool.Without(set, names.Strings(rest))
	}
	p.todo = l.pool.Of(rest...)
	if set == nil {
		return
	}
	p.explicit = true
	found := 0
	for i, s := range l.states {
		b := l.named(k, s, set)
		found += len(b.Entries)
		p.parts[i] = merged(b, p.parts[i], set)
	}
	if found < set.Len() {
		var gone []string
		for n := range set.All() {
			if l.lookup(w.typ, n) == nil {
				gone = append(gone, n)
			}
		}
		p.gone = l.pool.With(p.gone, names.Strings(gone))
	}
}

// named gives the entries of the given names, all of which were chosen one by one.
func (l *Ledger) named(k kind, s *table.State, set *names.Set) *table.Batch {
	if k != vhds {
		return s.Select(table.Selection{Type: l.watches[k].typ, Upto: always, Names: set})
	}
	var out []*table.Entry
	for n := range set.All() {
		if e := s.Get(resource.VirtualHost, n); e != nil {
			out = append(out, e)
		}
	}
	return table.NewBatch(out)
}

// merged is both batches without duplicates, where first has exactly the names of set.
func merged(first, second *table.Batch, set *names.Set) *table.Batch {
	if second == nil {
		return nonEmpty(first)
	}
	if !slices.ContainsFunc(second.Entries, func(e *table.Entry) bool { return !set.Has(e.Name) }) {
		return nonEmpty(first)
	}
	out := append([]*table.Entry{}, first.Entries...)
	for _, e := range second.Entries {
		if !set.Has(e.Name) {
			out = append(out, e)
		}
	}
	if len(out) == len(second.Entries) && len(first.Entries) == 0 {
		return second
	}
	return nonEmpty(table.NewBatch(out))
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

// planGroup takes one part of a refused response. What has changed meanwhile and must
// wait is left to todo.
func (l *Ledger) planGroup(k kind, limit model.Revision) *plan {
	w := &l.watches[k]
	p := l.newPlan(w)
	p.explicit = true
	var entries []*table.Entry
	var gone, wait []string
	for _, n := range w.groups[0] {
		switch e := l.lookup(w.typ, n); {
		case e == nil:
			gone = append(gone, n)
		case e.Revision > limit:
			wait = append(wait, n)
		case !w.holds(e):
			entries = append(entries, e)
		}
	}
	p.gone = l.pool.With(p.gone, names.Strings(gone))
	p.todo = l.pool.With(p.todo, names.Strings(wait))
	p.parts[0] = nonEmpty(table.NewBatch(entries))
	if l.protocol == Sotw {
		w.version = contentVersion(p.parts)
	}
	return p
}

// holdBack takes out what the proxy refused.
func (l *Ledger) holdBack(w *watch, p *plan) {
	if len(w.held) == 0 {
		return
	}
	for i, b := range p.parts {
		if b == nil {
			continue
		}
		var keep []*table.Entry
		for _, e := range b.Entries {
			if !w.holds(e) {
				keep = append(keep, e)
			}
		}
		if len(keep) < len(b.Entries) {
			p.parts[i] = nonEmpty(table.NewBatch(keep))
		}
	}
	for _, n := range p.removed {
		delete(w.held, n)
	}
}
