package ledger

import (
	"slices"
	"strconv"

	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Handle takes a request. It tells whether its type is one that the mesh serves.
func (l *Ledger) Handle(r *Request) bool {
	k, ok := l.kindOf(r.TypeURL)
	if !ok {
		return false
	}
	w := &l.watches[k]
	nonce := parseNonce(r.Nonce)
	if f := w.flight; f != nil && nonce == w.nonce {
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
		if first && (l.returning || l.ordering.untold) {
			l.waitFor(slices.Collect(w.todo.All())) // its clusters came before the stream broke
		}
		l.ordering.untold = false
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
				w.todo, w.gone, w.groups, w.held = nil, nil, nil, nil
			}
		}
		delete(w.held, string(n))
	}
	if !w.wild {
		w.todo, w.gone = l.pool.Without(w.todo, set), l.pool.Without(w.gone, set)
	}
	if k == eds {
		l.settlePrefetch(list)
	}
	if k == rds {
		l.dropRoutes(set)
	}
}
