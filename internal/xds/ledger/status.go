package ledger

import (
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// ResourceStatus is how far a resource, in its current form, has come on a stream.
type ResourceStatus uint8

// The statuses: a greater one is further behind.
const (
	NotSubscribed ResourceStatus = iota
	Has                          // the proxy has ACKed its newest form, or that it is gone
	Unanswered                   // it was sent, and neither ACKed nor refused
	Unsent                       // its newest form was not sent yet
	Refused                      // it is held back until it differs
)

// String returns the status in words: "not sent".
func (s ResourceStatus) String() string {
	return [...]string{"not subscribed", "ACKed", "sent", "not sent", "refused"}[s]
}

// Status returns the status of a resource, at a cost that depends only on what is in flight.
func (st *streamState) Status(t resource.Type, name string) ResourceStatus {
	k, ok := st.watchOf(t)
	if !ok || !st.willSubscribe(k, name) {
		return NotSubscribed
	}
	w, e := &st.watches[k], st.lookup(t, name)
	if e != nil && !st.carries(k, e) {
		return NotSubscribed
	}
	defer st.countProcessedOf(k, e)()
	switch {
	case st.heldOf(w, e) != nil:
		return Refused
	case w.firstPending || w.toSend.Has(name) || w.inGroups(name) || !st.subscribes(k, name):
		return Unsent
	case w.toRemove.Has(name) && (e == nil || !st.fullState(w)): // one that exists again is sent by name, unless responses are complete
		return Unsent
	case w.explicitHas(name):
		return Unanswered
	case e == nil:
		return st.statusOfRemoved(w, name)
	}
	for i, s := range st.states {
		if s.Get(t, name) == e {
			return against(e.Revision, w.at[i].add, w.acked(i).add)
		}
	}
	return Has
}

// watchOf returns the watch of a type; false if the proxy did not request it, or uses another route
// strategy.
func (st *streamState) watchOf(t resource.Type) (kind, bool) {
	k := kindsOf[t]
	return k, st.watches[k].typ == t && st.watches[k].on
}

// statusOfRemoved returns the status of a name that no table has.
func (st *streamState) statusOfRemoved(w *watch, name string) ResourceStatus {
	worst := Has
	for i, s := range st.states {
		for n, rev := range st.removed(kindsOf[w.typ], w.typ, s, w.acked(i).rem) {
			if n == name {
				worst = max(worst, against(rev, w.at[i].rem, w.acked(i).rem))
			}
		}
	}
	return worst
}

// against compares a revision with the cursors of what was sent and ACKed.
func against(rev, sent, acked model.Revision) ResourceStatus {
	switch {
	case rev > sent:
		return Unsent
	case rev > acked:
		return Unanswered
	}
	return Has
}

// Whole is the name under which a refused state-of-the-world response is held if Envoy's message
// names no resource.
const Whole = "?"

// heldOf returns the refusal that holds an entry back, or nil. That of a whole response covers
// everything that came with it.
func (st *streamState) heldOf(w *watch, e *table.Entry) *Held {
	if e == nil || len(w.held) == 0 {
		return nil
	}
	if w.holds(e) {
		return w.held[e.Name]
	}
	if h := w.held[Whole]; h != nil && h.Version == w.version && e.Revision > h.since {
		return h
	}
	return nil
}

// Refusal returns why a resource is held back; nil if it is not, or if the proxy does not subscribe
// to it.
func (st *streamState) Refusal(t resource.Type, name string) *Held {
	k, ok := st.watchOf(t)
	if !ok || !st.willSubscribe(k, name) {
		return nil
	}
	return st.heldOf(&st.watches[k], st.lookup(t, name))
}

// inGroups reports whether a name is in a part of a refused response.
func (w *watch) inGroups(name string) bool {
	return slices.ContainsFunc(w.groups, func(g []string) bool { return slices.Contains(g, name) })
}

// Behind reports whether anything of a type is not ACKed.
func (st *streamState) Behind(t resource.Type) bool {
	k, ok := st.watchOf(t)
	return ok && st.completeUpTo(k, true) != always
}

// HasSince reports whether the proxy has a resource as it was at a revision, or newer; also if it
// does not subscribe to it.
func (st *streamState) HasSince(t resource.Type, name string, rev model.Revision) bool {
	k, ok := st.watchOf(t)
	if !ok || !st.willSubscribe(k, name) {
		return true
	}
	w := &st.watches[k]
	defer st.countProcessedOf(k, st.lookup(t, name))()
	if h := w.held[name]; h != nil && h.since < rev {
		return false
	}
	if w.firstPending || w.toSend.Has(name) || w.inGroups(name) || !st.subscribes(k, name) || w.toRemove.Has(name) && !st.fullState(w) || w.explicitHas(name) {
		return false
	}
	for i, s := range st.states {
		if e := s.Get(t, name); e != nil {
			if !st.carries(k, e) {
				return true
			}
			return w.acked(i).add >= rev || e.Revision <= w.acked(i).add
		}
	}
	return st.statusOfRemoved(w, name) == Has
}

// Refuses reports whether any resource is held back.
func (st *streamState) Refuses() bool {
	if st.refused == 0 {
		return false // without looking at every watch
	}
	for k := range kinds {
		if len(st.watches[k].held) > 0 {
			return true
		}
	}
	return false
}

// TypeState is the state of a type on the stream, for reports.
type TypeState struct {
	Type       resource.Type
	Wildcard   bool
	Subscribed int
	Sent       model.Revision
	ACKed      model.Revision
	InFlight   bool
	Waiting    string
	Version    string
	Held       []Held // in the order of names
}

// Types returns the state of each type that the proxy requested.
func (l *Ledger) Types() []TypeState {
	var out []TypeState
	for k := range kinds {
		w := &l.watches[k]
		if !w.on {
			continue
		}
		t := TypeState{Type: w.typ, Wildcard: w.wildcard, Subscribed: w.names.Len(), InFlight: w.flight != nil, Version: w.version}
		for i := range l.states {
			t.Sent = max(t.Sent, w.at[i].add)
			t.ACKed = max(t.ACKed, w.acked(i).add)
		}
		if l.heldUp(k) {
			t.Waiting = "clusters and their endpoints"
			if l.ordering.limit() == always {
				t.Waiting = "scopes and their routes"
			}
		} else if k == cds && w.flight == nil && (w.toRemove != nil || !l.upToDate(w)) {
			t.Waiting = "listeners and routes, to remove clusters"
		}
		for _, h := range w.held {
			t.Held = append(t.Held, *h)
		}
		slices.SortFunc(t.Held, func(a, b Held) int { return strings.Compare(a.Name, b.Name) })
		out = append(out, t)
	}
	return out
}
