package ledger

import (
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

// compose appends the next response of a type, if there is one. Where nothing needs to be
// sent it moves the cursors. It tells whether these, todo or gone have moved.
func (l *Ledger) compose(k kind, out []Response) (_ []Response, moved bool) {
	w, limit := &l.watches[k], l.limit(k)
	for len(w.groups) > 0 {
		p := l.planGroup(k, limit)
		moved = moved || p.moves(w)
		w.groups, w.todo, w.gone = w.groups[1:], p.todo, p.gone
		if !p.empty() {
			return l.launch(k, p, out), moved
		}
	}
	if k == lds && limit != always && !w.answer {
		if p, ok := l.planScopesListener(); ok {
			moved = moved || p.moves(w)
			return l.launch(k, p, out), moved
		}
	}
	if w.answer && limit != always || k == srds && l.scopesWait() {
		return out, moved // the first answer must be whole
	}
	if l.upToDate(w) && w.idle() && !w.answer && (k != vhds || l.load == nil) {
		return out, l.rest(w) || moved
	}
	if l.protocol == Sotw && resource.Types[w.typ].FullState {
		return l.composeWhole(k, out)
	}
	p := l.newPlan(w)
	l.planNews(k, limit, p)
	if p.empty() && !w.answer {
		return out, l.skip(w, p) || moved
	}
	if l.protocol == Sotw {
		w.version = contentVersion(p.parts)
	}
	moved = moved || p.moves(w)
	return l.launch(k, p, out), moved
}

// moves tells whether the plan's watch is somewhere else when it is carried out.
func (p *plan) moves(w *watch) bool { return p.at != w.at || p.todo != w.todo || p.gone != w.gone }

// skip moves a watch beyond a plan that needs no response.
func (l *Ledger) skip(w *watch, p *plan) (moved bool) {
	moved = p.moves(w)
	w.at, w.todo, w.gone = p.at, p.todo, p.gone
	return l.rest(w) || moved
}

// planNews takes all that the proxy does not have, up to limit, but for what it refused.
func (l *Ledger) planNews(k kind, limit model.Revision, p *plan) {
	l.planChanged(k, limit, p)
	l.planRemoved(k, limit, p)
	l.planTodo(k, limit, p)
	l.planGone(k, limit, p)
	if k == vhds && limit == always {
		l.planLoad(p)
	}
	l.holdBack(&l.watches[k], p)
	if l.protocol == Sotw {
		p.removed = nil
	}
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
// it has nothing to send of. It tells whether any was behind.
func (l *Ledger) rest(w *watch) (moved bool) {
	if w.idle() {
		w.owes = 0
	}
	for i, s := range l.states {
		at := &w.at[i]
		if s.LastChanged(w.typ) <= at.add && at.firm < max(at.add, s.Revision) {
			at.add = max(at.add, s.Revision)
			at.firm, moved = at.add, true
		}
		if at.rem < s.Revision && s.LastRemoved(w.typ) <= at.rem {
			at.rem, moved = s.Revision, true
		}
	}
	return moved
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
