package ledger

import (
	"cmp"
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// plan is a response in preparation, and the state of its watch after it is sent.
type plan struct {
	l     *Ledger
	k     kind
	w     *watch
	limit model.Revision // newest revision of changes that may be sent

	parts            [2 * MaxTables]*table.Batch // each table's, then loaded virtual hosts of each
	removed          []string
	at               [MaxTables]cursor
	toSend, toRemove *names.Set
	toLoad           *names.Set // route configurations still to be loaded
	explicit         bool       // it has names of toSend, toRemove or groups
}

func (l *Ledger) newPlan(k kind, limit model.Revision) *plan {
	w := &l.watches[k]
	return &plan{l: l, k: k, w: w, limit: limit, at: w.at, toSend: w.toSend, toRemove: w.toRemove, toLoad: l.toLoad}
}

// empty reports whether no response is needed.
func (p *plan) empty() bool {
	return p.parts == [2 * MaxTables]*table.Batch{} && len(p.removed) == 0
}

// moves reports whether the plan changes the cursors, toSend or toRemove of its watch.
func (p *plan) moves() bool {
	return p.at != p.w.at || p.toSend != p.w.toSend || p.toRemove != p.w.toRemove
}

// compose appends the next response of a type, if there is one. If nothing needs to be sent, it
// moves the cursors. It reports whether the cursors, toSend or toRemove changed.
func (l *Ledger) compose(k kind, out []Response) (_ []Response, moved bool) {
	w := &l.watches[k]
	if l.quiet(k) {
		return out, l.skipUnchanged(w)
	}
	limit := l.limit(k)
	part, moved := l.nextGroup(k, limit)
	if part != nil {
		return l.send(part, out), moved
	}
	if k == lds && limit != always && !w.firstPending {
		if p := l.newPlan(k, limit); p.scopesListener() {
			moved = moved || p.moves()
			return l.send(p, out), moved
		}
	}
	switch {
	case w.firstPending && limit != always, k == srds && l.scopes.firstMustWait():
		return out, moved // the first response must be complete
	case l.nothingToSend(k):
		return out, l.skipUnchanged(w) || moved
	case l.fullState(w):
		return l.composeWhole(k, out)
	}
	p := l.newPlan(k, limit)
	p.all()
	if p.empty() && !w.firstPending {
		return out, p.skip() || moved
	}
	if l.protocol == Sotw {
		w.version = contentVersion(p.parts)
	}
	moved = moved || p.moves()
	return l.send(p, out), moved
}

// nextGroup plans the next part of a refused response, and drops parts of which nothing is left; nil: no part is left. It
// reports whether the watch changed.
func (l *Ledger) nextGroup(k kind, limit model.Revision) (_ *plan, moved bool) {
	w := &l.watches[k]
	for len(w.groups) > 0 {
		p := l.newPlan(k, limit)
		p.group()
		moved = moved || p.moves()
		w.groups, w.toSend, w.toRemove = w.groups[1:], p.toSend, p.toRemove
		if !p.empty() {
			return p, moved
		}
	}
	return nil, moved
}

// nothingToSend reports whether the proxy has everything of a type, or everything is in flight or held back.
func (l *Ledger) nothingToSend(k kind) bool {
	w := &l.watches[k]
	return !w.firstPending && w.idle() && l.upToDate(w) && (k != vhds || l.toLoad == nil)
}

// quiet reports whether compose only has to move the cursors. It is a shortcut, because most changes
// concern one type. It is never true of listeners with scopes: compose may send the listener that
// requests the scopes first.
func (l *Ledger) quiet(k kind) bool {
	return !(k == lds && l.strategy.Scopes) && l.nothingToSend(k)
}

// skip applies a plan that needs no response. It reports whether the watch changed.
func (p *plan) skip() (moved bool) {
	moved = p.moves()
	p.w.at, p.w.toSend, p.w.toRemove = p.at, p.toSend, p.toRemove
	return p.l.skipUnchanged(p.w) || moved
}

// all plans everything up to the limit that the proxy does not have, except what it refused.
func (p *plan) all() {
	p.changes()
	p.removals()
	p.namesToSend()
	p.postponeEndpoints()
	p.namesToRemove()
	if p.k == vhds && p.limit == always {
		p.loadVirtualHosts()
	}
	p.dropHeld()
	if p.l.protocol == Sotw {
		p.removed = nil
	}
}

// changes plans the entries that changed after the cursors, up to the limit.
func (p *plan) changes() {
	typ := p.w.typ
	set, none := p.l.filter(p.k)
	for i, s := range p.l.states {
		upto := min(p.limit, s.Revision)
		if upto <= p.at[i].add {
			continue
		}
		if s.LastChanged(typ) > p.at[i].add && !none {
			sel := table.Selection{Type: typ, After: p.at[i].add, Upto: always, Names: set}
			if p.limit < s.Revision {
				sel.Upto = p.limit
			}
			if p.k == cds && p.l.partial {
				sel.Partial, sel.Carried = true, p.l.carried
			}
			p.parts[i] = nonEmpty(s.Select(sel))
		}
		p.at[i].add = upto
		if s.LastChanged(typ) <= upto {
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

// namesToSend plans the names of toSend that the limit admits. Names that no table has move to
// toRemove.
func (p *plan) namesToSend() {
	l, typ := p.l, p.w.typ
	if p.toSend == nil {
		return
	}
	set, rest := p.toSend, []string(nil)
	if p.k == vhds {
		set = l.pool.Without(set, names.Strings(l.hosts.notSynced(set)))
	}
	if p.limit != always {
		for n := range p.toSend.All() {
			if e := l.lookup(typ, n); e != nil && e.Revision > p.limit {
				rest = append(rest, n)
			}
		}
		set = l.pool.Without(set, names.Strings(rest))
	}
	p.toSend = l.pool.Of(rest...)
	if p.k == eds {
		defer func() { l.changed = nil }()
	}
	if set == nil {
		return
	}
	p.explicit = true
	found := 0
	for i, s := range l.states {
		b := p.named(s, set)
		found += len(b.Entries)
		p.parts[i] = merged(b, p.parts[i], set)
	}
	if found < set.Len() {
		var gone []string
		for n := range set.All() {
			if l.lookup(typ, n) == nil {
				gone = append(gone, n)
			}
		}
		if p.k == eds {
			gone = p.endWarming(gone)
		}
		p.toRemove = l.pool.With(p.toRemove, names.Strings(gone))
	}
}

// endWarming plans the removal of those of some missing endpoints whose cluster waits for its first endpoints, and returns
// the others. Such a cluster is in flight, and the proxy did not have it before. Envoy ACKs no cluster meanwhile. Nothing
// refers to the cluster yet, unless the proxy has refused something and keeps an old form of it.
func (p *plan) endWarming(gone []string) []string {
	l := p.l
	if l.watches[cds].flight == nil || l.refused > 0 || len(gone) == 0 {
		return gone
	}
	missing, warms := among(gone), map[string]bool{}
	for f := range l.watches[cds].unanswered() {
		for i, part := range f.parts[:MaxTables] {
			if part == nil {
				continue
			}
			for _, c := range part.Entries {
				if missing(c.Name) && !l.changed.Has(c.Name) {
					warms[c.Name] = warms[c.Name] || f.explicit && l.newClusters.Has(c.Name) || !f.explicit && !l.prefetch.sentBefore(c, i, f)
				}
			}
		}
	}
	return slices.DeleteFunc(gone, func(n string) bool {
		if warms[n] {
			p.removed = append(p.removed, n)
		}
		return warms[n]
	})
}

// postponeEndpoints moves the endpoints of clusters whose change is not sent yet to toSend. The proxy's form of the cluster may
// not be able to connect to them. Endpoints that the proxy waits for are not postponed: it may not answer without them, and the
// change may wait for its answer.
func (p *plan) postponeEndpoints() {
	l := p.l
	switch {
	case p.k != eds:
		return
	case !l.changesClusters():
		l.postponed = nil
		return
	}
	var later []string
	for i, b := range p.parts {
		if b == nil {
			continue
		}
		var now []*table.Entry
		for _, e := range b.Entries {
			if p.w.toSend.Has(e.Name) && !l.postponed.Has(e.Name) || !l.changesCluster(e.Name) {
				now = append(now, e)
				continue
			}
			later = append(later, e.Name)
			p.w.notePending(e.Revision)
		}
		if len(now) < len(b.Entries) {
			p.parts[i] = nonEmpty(table.NewBatch(now))
		}
	}
	l.postponed = l.pool.Of(later...)
	p.toSend = l.pool.Union(p.toSend, l.postponed)
}

// named returns the entries with the given names. Every name was selected individually.
func (p *plan) named(s *table.State, set *names.Set) *table.Batch {
	if p.k != vhds {
		return s.Select(table.Selection{Type: p.w.typ, Upto: always, Names: set})
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

// group plans one part of a refused response. Entries that changed since and must wait move to
// toSend.
func (p *plan) group() {
	l, w := p.l, p.w
	p.explicit = true
	var entries []*table.Entry
	var gone, wait, endpoints []string
	for _, n := range w.groups[0] {
		switch e := l.lookup(w.typ, n); {
		case e == nil:
			gone = append(gone, n)
		case e.Revision > p.limit:
			wait = append(wait, n)
		case w.holds(e):
		case p.k == eds && l.changesCluster(n):
			endpoints = append(endpoints, n)
		default:
			entries = append(entries, e)
		}
	}
	p.toRemove = l.pool.With(p.toRemove, names.Strings(gone))
	p.toSend = l.pool.With(l.pool.With(p.toSend, names.Strings(wait)), names.Strings(endpoints))
	l.postponed = l.pool.With(l.postponed, names.Strings(endpoints))
	p.parts[0] = nonEmpty(table.NewBatch(entries))
	if l.protocol == Sotw {
		w.version = contentVersion(p.parts)
	}
}

// scopesListener plans only the listener that makes the proxy request scopes. It returns false if
// this listener needs not be sent.
func (p *plan) scopesListener() bool {
	l, e := p.l, p.l.lookup(resource.Listener, routeshard.Listener)
	if l.scopes.hasListener || l.reconnecting || !l.scopes.mustBeRequested() || p.w.holds(e) {
		return false
	}
	p.parts[0], p.explicit = table.NewBatch([]*table.Entry{e}), true
	p.toSend = l.pool.Without(p.toSend, names.Strings([]string{e.Name}))
	p.w.notePending(e.Revision)
	return true
}

// loadVirtualHosts plans all virtual hosts of route configurations that the proxy ACKed.
func (p *plan) loadVirtualHosts() {
	l := p.l
	if l.toLoad == nil {
		return
	}
	found := map[string]bool{}
	for i, s := range l.states {
		b := s.Select(table.Selection{Type: resource.VirtualHost, Upto: always, Names: l.toLoad})
		p.parts[MaxTables+i] = nonEmpty(b)
		for _, e := range b.Entries {
			if !p.w.holds(e) {
				found[table.RouteConfigOf(e.Name)] = true
			}
		}
	}
	for rc := range l.toLoad.All() {
		if !found[rc] {
			p.removed = append(p.removed, rc+"/none") // ends Envoy's wait for virtual hosts
		}
	}
	p.toLoad, p.explicit = nil, true
}

// dropHeld removes the entries from a plan that the proxy refused in this version.
func (p *plan) dropHeld() {
	if len(p.w.held) == 0 {
		return
	}
	for i, b := range p.parts {
		if b == nil {
			continue
		}
		var keep []*table.Entry
		for _, e := range b.Entries {
			if !p.w.holds(e) {
				keep = append(keep, e)
			}
		}
		if len(keep) < len(b.Entries) {
			p.parts[i] = nonEmpty(table.NewBatch(keep))
		}
	}
	for _, n := range p.removed {
		if !p.l.refusedAsked(p.w, n) {
			delete(p.w.held, n)
		}
	}
}

// removals plans the removals after the cursors, up to the first that must wait.
//
// A virtual host that was removed after the limit waits for the virtual hosts that are added with
// it: one of them may replace it. A virtual host that waits for its route configuration to be
// removed does not block the others: they may have the domains of virtual hosts that are added now,
// and Envoy refuses two virtual hosts with one domain.
func (p *plan) removals() {
	l := p.l
	if !l.hasRemovals(p.w, &p.at) {
		for i, s := range l.states {
			p.at[i].rem, p.at[i].wait = max(p.at[i].rem, s.Revision), p.stillWaiting(i)
		}
		return
	}
	var later []string // virtual hosts that wait for their route configuration to be removed
	removable := l.removable(p.k)
	for i, s := range l.states {
		if s.LastRemoved(p.w.typ) > p.at[i].rem && s.Forgotten(p.w.typ) > p.at[i].rem {
			p.forgotten()
		}
		later = p.removalsOf(i, removable, later)
	}
	p.toRemove = l.pool.With(p.toRemove, names.Strings(later))
}

// removalsOf plans the removals of table i. It appends to later the virtual hosts that wait for their route configuration.
func (p *plan) removalsOf(i int, removable model.Revision, later []string) []string {
	l, s := p.l, p.l.states[i]
	since := max(cmp.Or(p.w.at[i].wait, p.w.at[i].firm), 1)
	for name, rev := range l.removed(p.k, p.w.typ, s, p.at[i].rem) {
		stays := l.mustStay(p.k, name, rev, removable)
		switch {
		case stays && p.k == vhds && rev <= p.limit:
			p.w.notePending(since)
			later = append(later, name)
		case stays, p.k == vhds && rev > p.limit:
			p.at[i].rem, p.at[i].wait = rev-1, since
			return later
		case l.subscribes(p.k, name) && l.lookup(p.w.typ, name) == nil:
			p.removed = append(p.removed, name)
		}
	}
	p.at[i].rem, p.at[i].wait = max(p.at[i].rem, s.Revision), p.stillWaiting(i)
	return later
}

// stillWaiting returns cursor.wait for a table of which no removal has to wait.
func (p *plan) stillWaiting(i int) model.Revision {
	if p.l.states[i].LastChanged(p.w.typ) > p.at[i].add {
		return p.w.at[i].wait // the resource may exist again, and its new form has to wait
	}
	return 0
}

// forgotten handles removals that a table has forgotten. For named subscriptions it finds the names
// that no table has. For a wildcard subscription the stream must end, with ErrBehind.
func (p *plan) forgotten() {
	l := p.l
	if l.protocol == Sotw {
		return
	}
	if p.w.wildcard {
		l.err = ErrBehind
		return
	}
	var lost []string
	for n := range p.w.names.All() {
		if l.lookup(p.w.typ, n) == nil {
			lost = append(lost, n)
		}
	}
	p.toRemove = l.pool.With(p.toRemove, names.Strings(lost))
}

// namesToRemove plans the removals of toRemove that may be sent. It removes virtual hosts only
// together with those that are added.
func (p *plan) namesToRemove() {
	if p.toRemove == nil {
		return
	}
	l, k := p.l, p.k
	removable := l.removable(k)
	var back, wait []string
	planned := among(p.removed)
	for n := range p.toRemove.All() {
		switch {
		case planned(n):
		case k == vhds && !l.subscribes(k, n) && l.hosts.willBeSent(table.RouteConfigOf(n)):
			wait = append(wait, n) // until the route configuration exists again
		case l.refusedAsked(p.w, n):
			p.removed = append(p.removed, n)
			p.explicit = true
		case l.lookup(p.w.typ, n) != nil:
			back = append(back, n)
		case !l.subscribes(k, n) && !l.hosts.mayDrain(k, n):
		case k == vhds && p.limit != always || l.mustStay(k, n, always, removable):
			wait = append(wait, n)
		default:
			p.removed = append(p.removed, n)
			p.explicit = true
		}
	}
	p.toRemove = l.pool.Of(wait...)
	p.toSend = l.pool.With(p.toSend, names.Strings(p.without(back)))
}

// without returns those of some names that no resource of the plan has. It changes the list.
func (p *plan) without(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	f := flight{parts: p.parts}
	return slices.DeleteFunc(list, among(f.names()))
}

// among returns a function that reports whether a list has a name. A long list becomes a map.
func among(list []string) func(string) bool {
	if len(list) <= 16 {
		return func(n string) bool { return slices.Contains(list, n) }
	}
	set := make(map[string]bool, len(list))
	for _, n := range list {
		set[n] = true
	}
	return func(n string) bool { return set[n] }
}
