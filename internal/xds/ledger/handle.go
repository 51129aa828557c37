package ledger

import (
	"slices"
	"strconv"

	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Handle takes a request. It tells whether its type is one that the mesh serves.
func (l *Ledger) Handle(r *Request) bool {
	k, ok := l.kindOf(r.TypeURL)
	if !ok {
		return false
	}
	w := &l.watches[k]
	nonce := parseNonce(r.Nonce)
	if f := w.flight; f != nil && nonce == f.nonce {
		since := l.newest()
		if r.Error != nil {
			since = min(since, l.floor(k, false))
		}
		w.flight = nil
		l.unasked(k)
		if r.Error == nil {
			l.accept(k, f)
		} else {
			l.refuse(k, f, r.Error, since)
		}
		*f = flight{}
		flights.Put(f)
	}
	if l.protocol == Delta {
		l.subscribe(k, r)
		l.scopesAsked(k, r)
		l.returning = l.returning && !(l.watches[rds].on && (l.watches[vhds].on || !l.strategy.VirtualHosts))
	} else if len(r.Nonce) == 0 || nonce == w.nonce {
		l.name(k, r)
	}
	return true
}

// parseNonce gives 0 where it is not one of ours.
func parseNonce(b []byte) uint64 {
	if len(b) == 0 {
		return 0
	}
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// accept takes an ACK.
func (l *Ledger) accept(k kind, f *flight) {
	w := &l.watches[k]
	switch {
	case len(w.held) == 0:
	case l.protocol == Sotw && resource.Types[w.typ].FullState:
		w.held = nil
	default:
		for e := range f.entries() {
			delete(w.held, e.Name)
		}
	}
	if w.idle() {
		w.owes = 0
	}
	if k == rds {
		l.routesAccepted(f)
	}
}

// subscribe takes the subscriptions of a delta request.
func (l *Ledger) subscribe(k kind, r *Request) {
	w := &l.watches[k]
	first := !w.on
	if first {
		l.begin(k, len(r.Subscribe) == 0)
	}
	if len(r.Unsubscribe) > 0 {
		l.unsubscribe(k, r.Unsubscribe)
	}
	if len(r.Subscribe) > 0 {
		l.subscribeNames(k, r.Subscribe)
	}
	if first && len(r.Initial) > 0 {
		l.reconnect(k, r)
	}
	if first && k == vhds {
		l.beginVirtualHosts(r)
	}
	if k == eds {
		l.resend = nil // from now on todo has them
		if first && (l.returning || l.gate.untold) {
			l.waitFor(slices.Collect(w.todo.All())) // its clusters came before the stream broke
		}
		l.gate.untold = false
	}
	switch {
	case w.todo == nil && w.gone == nil:
	case len(r.Initial) > 0:
		w.owe(1) // what the proxy has may be of any revision
	default:
		w.owe(l.newest())
	}
}

// begin starts a watch. Without names, a type that has wildcards is subscribed whole.
func (l *Ledger) begin(k kind, unnamed bool) {
	w := &l.watches[k]
	w.on, l.on = true, l.on|1<<k
	if unnamed && resource.Types[w.typ].Wildcard {
		l.subscribeAll(k)
		return
	}
	for i, s := range l.states {
		w.at[i] = upTo(s)
	}
}

// subscribeAll makes a watch a wildcard, to be sent everything.
func (l *Ledger) subscribeAll(k kind) {
	w := &l.watches[k]
	w.wild = true
	if k == vhds { // they come with the route configurations
		for i, s := range l.states {
			w.at[i] = upTo(s)
		}
		return
	}
	w.answer = true
	l.scopes.anew = l.scopes.anew || k == srds
	for i, s := range l.states {
		w.at[i] = fromStart(s)
	}
}

const wildcard = "*"

func isWildcard(name []byte) bool { return string(name) == wildcard }

func (l *Ledger) subscribeNames(k kind, list [][]byte) {
	w := &l.watches[k]
	all := slices.ContainsFunc(list, isWildcard)
	if all && !w.wild {
		l.subscribeAll(k)
	}
	switch {
	case k == eds:
		list = l.asked(list) // wildcards of endpoints are not served
	case all:
		list = slices.DeleteFunc(slices.Clone(list), isWildcard)
	}
	set := names.Slices(list)
	w.names = l.pool.With(w.names, set)
	w.todo = l.pool.With(w.todo, set)
	if k == rds {
		l.dropRoutes(set)
	}
}

func (l *Ledger) unsubscribe(k kind, list [][]byte) {
	w := &l.watches[k]
	set := names.Slices(list)
	w.names = l.pool.Without(w.names, set)
	for _, n := range list {
		if string(n) == wildcard {
			w.wild, w.answer = false, false
			if k == srds { // its last listener with scopes is gone
				w.todo, w.gone, w.rare = nil, nil, &nothing
			}
		}
		delete(w.held, string(n))
	}
	if !w.wild {
		w.todo, w.gone = l.pool.Without(w.todo, set), l.pool.Without(w.gone, set)
	}
	if k == eds {
		l.settleAhead(list)
	}
	if k == rds {
		l.dropRoutes(set)
	}
}

// reconnect compares what the proxy says it has with the tables.
func (l *Ledger) reconnect(k kind, r *Request) {
	w := &l.watches[k]
	if w.wild {
		l.keep(k)
	}
	if k == cds {
		l.returning, l.gate.untold = true, !l.watches[eds].on && l.anyEndpoints(r.Initial)
	}
	if k == rds {
		defer l.routesKept(r.Initial)
	}
	if l.hasAll(k, r) {
		w.todo = nil
		return
	}
	var same, differ, gone [][]byte
	for _, nv := range r.Initial {
		e := l.lookupBytes(w.typ, nv.Name)
		switch {
		case e == nil:
			gone = append(gone, nv.Name)
		case e.Version == string(nv.Version) && !l.resend.HasBytes(nv.Name):
			same = append(same, nv.Name)
		default:
			differ = append(differ, nv.Name)
		}
	}
	if w.wild && k != vhds && len(same)+len(differ) < l.states[0].Len(w.typ)+l.states[1].Len(w.typ) {
		w.todo = l.pool.With(w.todo, names.Strings(l.missing(k, r.Initial)))
	}
	if w.wild {
		w.todo = l.pool.With(w.todo, names.Slices(differ))
	} else { // they are in todo as they were subscribed
		w.todo = l.pool.Without(w.todo, names.Slices(same))
		w.todo = l.pool.Without(w.todo, names.Slices(gone))
	}
	w.gone = l.pool.With(w.gone, names.Slices(gone))
}

// anyEndpoints tells whether a proxy asks for endpoints of any cluster that it has, as it has it: those
// in another form are sent, and waited for unless it refuses them.
func (l *Ledger) anyEndpoints(clusters []NameVersion) bool {
	return slices.ContainsFunc(clusters, func(nv NameVersion) bool {
		c := l.lookupBytes(resource.Cluster, nv.Name)
		return c != nil && c.Version == string(nv.Version) && l.lookupBytes(resource.Endpoints, nv.Name) != nil
	})
}

// hasAll tells whether the proxy has exactly what the tables have, at the cost of a hash
// for each resource: the usual case when a control plane was restarted.
func (l *Ledger) hasAll(k kind, r *Request) bool {
	w := &l.watches[k]
	a, b := l.states[0], l.states[1]
	if l.resend != nil || !w.wild && len(r.Subscribe) != len(r.Initial) {
		return false
	}
	want := amount{a.Len(w.typ) + b.Len(w.typ), a.Sum(w.typ) + b.Sum(w.typ)}
	if k == vhds && want.n != len(r.Initial) {
		want = l.hostsOf(l.pool.Of(routeConfigsOf(r.Initial)...))
	}
	if want.n != len(r.Initial) {
		return false
	}
	for i := range r.Initial {
		want.sum -= table.Hash(r.Initial[i].Name, r.Initial[i].Version)
	}
	return want.sum == 0
}

// keep takes the tables' present states as sent.
func (l *Ledger) keep(k kind) {
	w := &l.watches[k]
	w.answer = false
	for i, s := range l.states {
		w.at[i] = upTo(s)
		if k == cds {
			l.gate.open[i] = s.Revision
		}
	}
}

// missing gives the names of the tables that the proxy does not have.
func (l *Ledger) missing(k kind, has []NameVersion) (out []string) {
	set := make(map[string]bool, len(has))
	for _, nv := range has {
		set[string(nv.Name)] = true
	}
	for _, s := range l.states {
		for e := range s.All(l.watches[k].typ) {
			if !set[e.Name] {
				out = append(out, e.Name)
			}
		}
	}
	return out
}

// follow does what sending a response brings with it.
func (l *Ledger) follow(k kind, f *flight, p *plan) {
	switch k {
	case cds:
		l.clustersSent(f)
	case lds:
		l.listenersSent(f)
	case rds:
		if len(p.removed) > 0 {
			l.dropRoutes(names.Strings(p.removed))
		}
	case vhds:
		if loaded := l.pool.Minus(l.load, p.load); loaded != nil {
			l.synced, l.load = l.pool.Union(l.synced, loaded), p.load
		}
	}
}

// clustersSent has the endpoints of changed clusters sent again: Envoy keeps a changed
// cluster warming until they come, and does not ask, as it has subscribed them already.
func (l *Ledger) clustersSent(f *flight) {
	e := &l.watches[eds]
	var again, later, all, ahead []string
	for i, part := range f.parts[:MaxTables] {
		if part == nil {
			continue
		}
		for _, c := range part.Entries {
			if l.protocol == Sotw && c.Revision <= f.from[i].add {
				continue // there because the response is whole
			}
			switch {
			case e.on && e.names.Has(c.Name) && l.lookup(resource.Endpoints, c.Name) != nil:
				again = append(again, c.Name)
			case !e.on && (f.explicit || c.Added <= f.from[i].add):
				later = append(later, c.Name)
			case l.goesAhead(c):
				ahead = append(ahead, c.Name)
			}
			if f.explicit || l.watches[cds].held[c.Name] != nil { // or it was refused before
				all = append(all, c.Name)
			}
		}
	}
	l.resend = l.pool.With(l.resend, names.Strings(later))
	l.sendAhead(ahead, f)
	if len(again) > 0 {
		e.todo = l.pool.With(e.todo, names.Strings(again))
		e.owe(l.newest())
	}
	if len(all) > 0 {
		f.explicit = true
		l.watches[cds].owe(l.newest())
		l.waitFor(all)
	}
}
