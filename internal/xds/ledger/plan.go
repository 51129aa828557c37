package ledger

import (
	"cmp"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// plan is a response in preparation, and the state of its watch after it is sent.
type plan struct {
	parts            [4]*table.Batch // each table's, then loaded virtual hosts of each
	removed          []string
	at               [MaxTables]cursor
	toSend, toRemove *names.Set
	toLoad           *names.Set // route configurations still to be loaded
	explicit         bool
}

func (l *Ledger) newPlan(w *watch) *plan {
	return &plan{at: w.at, toSend: w.toSend, toRemove: w.toRemove, toLoad: l.toLoad}
}

func (p *plan) empty() bool {
	return p.parts == [4]*table.Batch{} && len(p.removed) == 0
}

// compose appends the next response of a type, if there is one. If nothing needs to be sent, it
// moves the cursors. It reports whether the cursors, toSend or toRemove changed.
func (l *Ledger) compose(k kind, out []Response) (_ []Response, moved bool) {
	w, limit := &l.watches[k], l.limit(k)
	for len(w.groups) > 0 {
		p := l.planGroup(k, limit)
		moved = moved || p.moves(w)
		w.groups, w.toSend, w.toRemove = w.groups[1:], p.toSend, p.toRemove
		if !p.empty() {
			return l.send(k, p, out), moved
		}
	}
	if k == lds && limit != always && !w.firstPending {
		if p, ok := l.planScopesListener(); ok {
			moved = moved || p.moves(w)
			return l.send(k, p, out), moved
		}
	}
	if w.firstPending && limit != always || k == srds && l.scopesWait() {
		return out, moved // the first answer must be whole
	}
	if l.upToDate(w) && w.idle() && !w.firstPending && (k != vhds || l.toLoad == nil) {
		return out, l.skipUnchanged(w) || moved
	}
	if l.protocol == Sotw && resource.Types[w.typ].FullState {
		return l.composeWhole(k, out)
	}
	p := l.newPlan(w)
	l.planAll(k, limit, p)
	if p.empty() && !w.firstPending {
		return out, l.skip(w, p) || moved
	}
	if l.protocol == Sotw {
		w.version = contentVersion(p.parts)
	}
	moved = moved || p.moves(w)
	return l.send(k, p, out), moved
}

// moves reports whether the plan changes the cursors, toSend or toRemove of its watch.
func (p *plan) moves(w *watch) bool {
	return p.at != w.at || p.toSend != w.toSend || p.toRemove != w.toRemove
}

// skip applies a plan that needs no response. It reports whether the watch changed.
func (l *Ledger) skip(w *watch, p *plan) (moved bool) {
	moved = p.moves(w)
	w.at, w.toSend, w.toRemove = p.at, p.toSend, p.toRemove
	return l.skipUnchanged(w) || moved
}

// planAll plans everything up to limit that the proxy does not have, except what it refused.
func (l *Ledger) planAll(k kind, limit model.Revision, p *plan) {
	l.planChanged(k, limit, p)
	l.planRemoved(k, limit, p)
	l.planToSend(k, limit, p)
	l.planToRemove(k, limit, p)
	if k == vhds && limit == always {
		l.planHosts(p)
	}
	l.dropHeld(&l.watches[k], p)
	if l.protocol == Sotw {
		p.removed = nil
	}
}

// upToDate reports whether the tables have no changes or removals after the cursors.
func (l *Ledger) upToDate(w *watch) bool {
	for i, s := range l.states {
		if s.LastChanged(w.typ) > w.at[i].add || s.LastRemoved(w.typ) > w.at[i].rem {
			return false
		}
	}
	return true
}

// skipUnchanged moves the cursors past revisions that changed nothing of the type. It reports
// whether a cursor moved.
func (l *Ledger) skipUnchanged(w *watch) (moved bool) {
	if w.idle() {
		w.pendingSince = 0
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

// planChanged plans the entries that changed after the cursors, up to limit.
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

// planToSend plans the names of toSend that limit admits. Names that no table has move to toRemove.
func (l *Ledger) planToSend(k kind, limit model.Revision, p *plan) {
	w := &l.watches[k]
	if p.toSend == nil {
		return
	}
	set, rest := p.toSend, []string(nil)
	if k == vhds {
		set = l.pool.Without(set, names.Strings(l.notSynced(set)))
	}
	if limit != always {
		for n := range p.toSend.All() {
			if e := l.lookup(w.typ, n); e != nil && e.Revision > limit {
				rest = append(rest, n)
			}
		}
		set = l.pool.Without(set, names.Strings(rest))
	}
	p.toSend = l.pool.Of(rest...)
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
		p.toRemove = l.pool.With(p.toRemove, names.Strings(gone))
	}
}

// named returns the entries with the given names. Every name was selected individually.
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

// merged joins two batches without duplicates. first has only names of set.
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

// planGroup plans one part of a refused response. Entries that changed since and must wait move to
// toSend.
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
	p.toRemove = l.pool.With(p.toRemove, names.Strings(gone))
	p.toSend = l.pool.With(p.toSend, names.Strings(wait))
	p.parts[0] = nonEmpty(table.NewBatch(entries))
	if l.protocol == Sotw {
		w.version = contentVersion(p.parts)
	}
	return p
}

// dropHeld removes the entries from a plan that the proxy refused in this version.
func (l *Ledger) dropHeld(w *watch, p *plan) {
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

// planRemoved plans the removals after the cursors, up to the first that must wait.
//
// A virtual host that was removed after limit waits for the virtual hosts that are added with it:
// one of them may replace it. A virtual host that waits for its route configuration to be removed
// does not block the others: they may have the domains of virtual hosts that are added now, and
// Envoy refuses two virtual hosts with one domain.
func (l *Ledger) planRemoved(k kind, limit model.Revision, p *plan) {
	w := &l.watches[k]
	if l.hasRemovals(w, p) {
		later := l.planRemovals(k, limit, p)
		p.toRemove = l.pool.With(p.toRemove, names.Strings(later))
		return
	}
	for i, s := range l.states {
		p.at[i].rem, p.at[i].wait = max(p.at[i].rem, s.Revision), l.stillWaiting(w, i, p)
	}
}

// stillWaiting returns cursor.wait for a table of which no removal has to wait.
func (l *Ledger) stillWaiting(w *watch, i int, p *plan) model.Revision {
	if l.states[i].LastChanged(w.typ) > p.at[i].add {
		return w.at[i].wait // it may be there again, and its new form has to wait
	}
	return 0
}

// planRemovals plans the removals of every table. It returns the virtual hosts that wait for their
// route configuration to be removed.
func (l *Ledger) planRemovals(k kind, limit model.Revision, p *plan) (later []string) {
	w, removable := &l.watches[k], l.removable(k)
	for i, s := range l.states {
		if s.LastRemoved(w.typ) > p.at[i].rem && s.Forgotten(w.typ) > p.at[i].rem {
			l.afterForgotten(k, p)
		}
		next, wait := max(p.at[i].rem, s.Revision), l.stillWaiting(w, i, p)
		for name, rev := range s.Removed(w.typ, p.at[i].rem) {
			stays := l.mustStay(k, name, rev, removable)
			if stays && k == vhds && rev <= limit {
				w.notePending(max(cmp.Or(w.at[i].wait, w.at[i].firm), 1))
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

// hasRemovals reports whether the tables have removals after the cursors of the plan.
func (l *Ledger) hasRemovals(w *watch, p *plan) bool {
	for i, s := range l.states {
		if s.LastRemoved(w.typ) > p.at[i].rem {
			return true
		}
	}
	return false
}

// afterForgotten handles removals that a table has forgotten. For named subscriptions it finds the
// names that no table has. For a wildcard subscription the stream must end, with ErrBehind.
func (l *Ledger) afterForgotten(k kind, p *plan) {
	w := &l.watches[k]
	if l.protocol == Sotw {
		return
	}
	if w.wildcard {
		l.err = ErrBehind
		return
	}
	var lost []string
	for n := range w.names.All() {
		if l.lookup(w.typ, n) == nil {
			lost = append(lost, n)
		}
	}
	p.toRemove = l.pool.With(p.toRemove, names.Strings(lost))
}

// planToRemove plans the removals of toRemove that may be sent. It removes virtual hosts only
// together with those that are added.
func (l *Ledger) planToRemove(k kind, limit model.Revision, p *plan) {
	if p.toRemove == nil {
		return
	}
	w := &l.watches[k]
	removable := l.removable(k)
	var back, wait []string
	for n := range p.toRemove.All() {
		switch {
		case slices.Contains(p.removed, n):
		case k == vhds && !l.subscribes(k, n) && l.willBeSent(table.RouteConfigOf(n)):
			wait = append(wait, n) // until the route configuration is there again
		case l.lookup(w.typ, n) != nil:
			back = append(back, n)
		case !l.subscribes(k, n) && !l.mayDrain(k, n):
		case k == vhds && limit != always || l.mustStay(k, n, always, removable):
			wait = append(wait, n)
		default:
			p.removed = append(p.removed, n)
			p.explicit = true
		}
	}
	p.toRemove = l.pool.Of(wait...)
	p.toSend = l.pool.With(p.toSend, names.Strings(back))
}

// willBeSent reports whether a route configuration that the proxy does not have will be sent.
func (l *Ledger) willBeSent(rc string) bool {
	return l.watches[rds].names.Has(rc) && l.lookup(l.strategy.Routes, rc) != nil
}

// mayDrain reports whether a virtual host belongs to a route configuration that is removed but that
// the proxy subscribes to: a draining listener may still use it, and another listener may take it
// over.
func (l *Ledger) mayDrain(k kind, name string) bool {
	return k == vhds && l.watches[rds].names.Has(table.RouteConfigOf(name))
}
