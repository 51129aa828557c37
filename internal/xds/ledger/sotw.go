package ledger

import (
	"bytes"
	"maps"
	"slices"
	"strconv"

	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// name takes the names of a state-of-the-world request, which are all that the proxy wants.
func (l *Ledger) name(k kind, r *Request) {
	w := &l.watches[k]
	if !w.on {
		l.begin(k, len(r.Names) == 0)
		if resource.Types[w.typ].FullState {
			l.subscribeAll(k)
			w.wild = len(r.Names) == 0
		}
	}
	list := slices.DeleteFunc(slices.Clone(r.Names), func(n []byte) bool { return bytes.Equal(n, []byte(wildcard)) })
	if len(list) < len(r.Names) {
		w.wild = true
	}
	if w.wild || sameNames(w.names, list) {
		return
	}
	set := l.pool.With(nil, names.Slices(list))
	added, dropped := l.pool.Minus(set, w.names), l.pool.Minus(w.names, set)
	for n := range dropped.All() {
		delete(w.held, n)
	}
	w.todo = l.pool.Minus(w.todo, dropped)
	w.names = set
	if added == nil {
		return
	}
	w.todo = l.pool.Union(w.todo, added)
	w.owe(l.newest())
}

func sameNames(set *names.Set, list [][]byte) bool {
	if set.Len() != len(list) {
		return false
	}
	for _, n := range list {
		if !set.HasBytes(n) {
			return false
		}
	}
	return true
}

// composeWhole makes a response with everything: of clusters and listeners, what a
// response does not have is removed. So clusters that must stay go along as they were.
func (l *Ledger) composeWhole(k kind, out []Response) (_ []Response, moved bool) {
	w := &l.watches[k]
	if l.limit(k) != always {
		return out, false
	}
	p := l.newPlan(w)
	stay := l.whatStays(k, p)
	if p.at == w.at && !w.answer && w.idle() {
		return out, false
	}
	set := w.names
	if w.wild {
		set = nil
	}
	for i, s := range l.states {
		p.at[i].add, p.at[i].firm = s.Revision, s.Revision
		if w.wild || set != nil {
			p.parts[i] = nonEmpty(s.Select(table.Selection{Type: w.typ, Upto: always, Names: set}))
		}
	}
	p.parts[MaxTables] = nonEmpty(table.NewBatch(slices.Collect(maps.Values(stay))))
	p.explicit, p.todo = !w.idle() || w.answer, nil
	w.extras = stay
	if k == cds {
		w.last = l.states
	}
	if version := contentVersion(p.parts); version != w.version {
		w.version = version
		moved = p.moves(w)
		return l.launch(k, p, out), moved
	}
	w.answer = false
	return out, l.skip(w, p)
}

// whatStays moves the plan's cursors as far as removals may go, and gives the entries of
// what must stay.
func (l *Ledger) whatStays(k kind, p *plan) map[string]*table.Entry {
	w := &l.watches[k]
	stay := map[string]*table.Entry{}
	removable := l.removable(k)
	keep := func(name string) {
		if e := w.lastEntry(name); e != nil && l.lookup(w.typ, name) == nil {
			stay[name] = e
		}
	}
	for i, s := range l.states {
		p.at[i] = cursor{add: max(w.at[i].add, s.LastChanged(w.typ)), rem: max(w.at[i].rem, s.LastRemoved(w.typ)), firm: w.at[i].firm}
		for name, rev := range s.Removed(w.typ, w.at[i].rem) {
			if l.stays(k, name, rev, removable) {
				p.at[i].rem = min(p.at[i].rem, rev-1)
				keep(name)
			}
		}
	}
	var wait []string
	for n := range p.gone.All() {
		if l.stays(k, n, always, removable) {
			wait = append(wait, n)
			keep(n)
		}
	}
	p.gone = l.pool.Of(wait...)
	return stay
}

// lastEntry is a cluster as it was in the last response.
func (w *watch) lastEntry(name string) *table.Entry {
	if e := w.extras[name]; e != nil {
		return e
	}
	for _, s := range w.last {
		if s != nil {
			if e := s.Get(w.typ, name); e != nil {
				return e
			}
		}
	}
	return nil
}

// rebindWhole has everything compared: an equal version is not sent again.
func (l *Ledger) rebindWhole(k kind, i int) {
	w, s := &l.watches[k], l.states[i]
	var gone []string
	if last := w.last[i]; last != nil {
		for e := range last.All(w.typ) {
			if l.lookup(w.typ, e.Name) == nil {
				gone = append(gone, e.Name)
			}
		}
	}
	for n := range w.extras {
		if l.lookup(w.typ, n) == nil {
			gone = append(gone, n)
		}
	}
	w.gone = l.pool.With(w.gone, names.Strings(gone))
	w.at[i], w.answer = fromStart(s), true
	if w.flight != nil {
		w.flight = w.flight.own()
		w.flight.from[i], w.flight.explicit = w.at[i], true
	}
	l.reorder(k, i)
	w.owe(1)
}

// contentVersion is a hash of the resources' names and versions.
func contentVersion(parts [4]*table.Batch) string {
	var sum uint64
	for _, b := range parts {
		if b != nil {
			sum += b.Sum()
		}
	}
	return strconv.FormatUint(sum, 16)
}
