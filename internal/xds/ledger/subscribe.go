package ledger

import (
	"slices"

	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// subscribe processes the subscriptions of a delta request.
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
		l.hosts.begin(r)
	}
	if k == eds {
		l.resend = nil // from now on they are in toSend
		if first && (l.reconnecting || l.ordering.endpointsUnknown) {
			l.ordering.waitFor(slices.Collect(w.toSend.All())) // its clusters came before the stream broke
		}
		l.ordering.endpointsUnknown = false
	}
	switch {
	case w.toSend == nil && w.toRemove == nil:
	case len(r.Initial) > 0:
		w.notePending(1) // what the proxy has may be of any revision
	default:
		w.notePending(l.newest())
	}
}

// begin starts a watch. Without names, a type that has wildcards is subscribed as a whole.
func (l *Ledger) begin(k kind, unnamed bool) {
	w := &l.watches[k]
	w.on, l.requests = true, l.requests|1<<k
	if unnamed && resource.Types[w.typ].Wildcard && !l.asked {
		l.subscribeAll(k)
		return
	}
	for i, s := range l.states {
		w.at[i] = upTo(s)
	}
}

// subscribeAll makes a watch a wildcard subscription and schedules everything.
func (l *Ledger) subscribeAll(k kind) {
	w := &l.watches[k]
	w.wildcard = true
	if k == vhds { // virtual hosts come with their route configurations
		for i, s := range l.states {
			w.at[i] = upTo(s)
		}
		return
	}
	w.firstPending = true
	l.scopes.recheck = l.scopes.recheck || k == srds
	for i, s := range l.states {
		w.at[i] = fromStart(s)
	}
}

const wildcard = "*"

func isWildcard(name []byte) bool { return string(name) == wildcard }

// subscribeNames adds names, or everything, to the subscription.
func (l *Ledger) subscribeNames(k kind, list [][]byte) {
	w := &l.watches[k]
	all := slices.ContainsFunc(list, isWildcard) && !l.asked
	if all && !w.wildcard {
		l.subscribeAll(k)
	}
	switch {
	case k == eds:
		list = l.prefetch.subscribe(list) // wildcards of endpoints are not served
	case all:
		list = slices.DeleteFunc(slices.Clone(list), isWildcard)
	}
	set := names.Slices(list)
	w.names = l.pool.With(w.names, set)
	w.toSend = l.pool.With(w.toSend, set)
	switch k {
	case eds:
		l.postponed = l.pool.Without(l.postponed, set)
	case rds:
		l.hosts.dropRoutes(set)
	}
}

// unsubscribe removes names, or everything, from the subscription.
func (l *Ledger) unsubscribe(k kind, list [][]byte) {
	w := &l.watches[k]
	set := names.Slices(list)
	w.names = l.pool.Without(w.names, set)
	for _, n := range list {
		if string(n) == wildcard {
			w.wildcard, w.firstPending = false, false
			if k == srds { // its last listener with scopes is gone
				w.toSend, w.toRemove, w.groups, w.held = nil, nil, nil, nil
			}
		}
		delete(w.held, string(n))
	}
	if !w.wildcard {
		w.toSend, w.toRemove = l.pool.Without(w.toSend, set), l.pool.Without(w.toRemove, set)
	}
	switch k {
	case cds:
		l.granted = l.pool.Without(l.granted, set)
	case eds:
		l.prefetch.forget(list)
	case rds:
		l.hosts.dropRoutes(set)
	}
}
