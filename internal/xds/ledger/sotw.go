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

// subscribeSotw sets the subscription to the names of a state-of-the-world request, which are all
// that the proxy wants.
func (l *Ledger) subscribeSotw(k kind, r *Request) {
	w := &l.watches[k]
	if !w.on {
		l.begin(k, len(r.Names) == 0)
		if resource.Types[w.typ].FullState {
			l.subscribeAll(k)
			w.wildcard = len(r.Names) == 0
		}
	}
	list := slices.DeleteFunc(slices.Clone(r.Names), func(n []byte) bool { return bytes.Equal(n, []byte(wildcard)) })
	if len(list) < len(r.Names) {
		w.wildcard = true
	}
	if w.wildcard || sameNames(w.names, list) {
		return
	}
	set := l.pool.With(nil, names.Slices(list))
	added, dropped := l.pool.Minus(set, w.names), l.pool.Minus(w.names, set)
	for n := range dropped.All() {
		delete(w.held, n)
	}
	w.toSend = l.pool.Minus(w.toSend, dropped)
	w.names = set
	if added == nil {
		return
	}
	w.toSend = l.pool.Union(w.toSend, added)
	w.notePending(l.newest())
}

// sameNames reports whether a list has exactly the names of a set.
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

// composeWhole composes a response with every resource of a type: Envoy removes clusters and
// listeners that a response omits. Clusters that must stay are included in their last form.
func (l *Ledger) composeWhole(k kind, out []Response) (_ []Response, moved bool) {
	w := &l.watches[k]
	if l.limit(k) != always {
		return out, false
	}
	p := l.newPlan(k, always)
	stay := p.stay()
	if p.at == w.at && !w.firstPending && w.idle() {
		return out, false
	}
	set := w.names
	if w.wildcard {
		set = nil
	}
	for i, s := range l.states {
		p.at[i].add, p.at[i].firm = s.Revision, s.Revision
		if w.wildcard || set != nil {
			p.parts[i] = nonEmpty(s.Select(table.Selection{Type: w.typ, Upto: always, Names: set}))
		}
	}
	p.parts[MaxTables] = nonEmpty(table.NewBatch(slices.Collect(maps.Values(stay))))
	p.explicit, p.toSend = !w.idle() || w.firstPending, nil
	w.extras = stay
	if k == cds {
		w.last = l.states
	}
	if version := contentVersion(p.parts); version != w.version {
		w.version = version
		moved = p.moves()
		return l.send(p, out), moved
	}
	w.firstPending = false
	return out, p.skip()
}

// stay moves the cursors of the plan as far as removals are allowed. It returns the entries that
// must stay.
func (p *plan) stay() map[string]*table.Entry {
	l, w := p.l, p.w
	stay := map[string]*table.Entry{}
	removable := l.removable(p.k)
	keep := func(name string) {
		if e := w.lastEntry(name); e != nil && l.lookup(w.typ, name) == nil {
			stay[name] = e
		}
	}
	for i, s := range l.states {
		p.at[i] = cursor{add: max(w.at[i].add, s.LastChanged(w.typ)), rem: max(w.at[i].rem, s.LastRemoved(w.typ)), firm: w.at[i].firm}
		for name, rev := range s.Removed(w.typ, w.at[i].rem) {
			if l.mustStay(p.k, name, rev, removable) {
				p.at[i].rem = min(p.at[i].rem, rev-1)
				keep(name)
			}
		}
	}
	var wait []string
	for n := range p.toRemove.All() {
		if l.mustStay(p.k, n, always, removable) {
			wait = append(wait, n)
			keep(n)
		}
	}
	p.toRemove = l.pool.Of(wait...)
	return stay
}

// lastEntry returns a cluster as it was in the last response.
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

// rebindWhole schedules a complete response. It is not sent if its version is unchanged.
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
	w.toRemove = l.pool.With(w.toRemove, names.Strings(gone))
	w.at[i], w.firstPending = fromStart(s), true
	w.restart(i)
	l.reorder(k, i)
	w.notePending(1)
}

// contentVersion returns a hash of the resources' names and versions.
func contentVersion(parts [2 * MaxTables]*table.Batch) string {
	var sum uint64
	for _, b := range parts {
		if b != nil {
			sum += b.Sum()
		}
	}
	return strconv.FormatUint(sum, 16)
}
