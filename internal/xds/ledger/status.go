package ledger

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// ResourceStatus is how far a resource, in its current form, has come on a stream.
type ResourceStatus uint8

// The standings, the later the further behind.
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
func (l *Ledger) Status(t resource.Type, name string) ResourceStatus {
	k, ok := l.watchOf(t)
	if !ok || !l.willSubscribe(k, name) {
		return NotSubscribed
	}
	w, e := &l.watches[k], l.lookup(t, name)
	switch {
	case l.heldOf(w, e) != nil:
		return Refused
	case w.firstPending || w.toSend.Has(name) || w.inGroups(name) || !l.subscribes(k, name):
		return Unsent
	case w.toRemove.Has(name) && (e == nil || !l.fullState(w)): // one that came again is sent again, but with all others where they are sent whole
		return Unsent
	case w.flight != nil && w.flight.explicit && w.flight.has(name):
		return Unanswered
	case e == nil:
		return l.statusOfRemoved(w, name)
	}
	for i, s := range l.states {
		if s.Get(t, name) == e {
			return against(e.Revision, w.at[i].add, w.acked(i).add)
		}
	}
	return Has
}

// fullState reports whether responses of a watch must contain every resource.
func (l *Ledger) fullState(w *watch) bool {
	return l.protocol == Sotw && resource.Types[w.typ].FullState
}

// watchOf returns the watch of a type; false if the proxy did not request it, or uses another route
// strategy.
func (l *Ledger) watchOf(t resource.Type) (kind, bool) {
	k := kindsOf[t]
	return k, l.watches[k].typ == t && l.watches[k].on
}

// willSubscribe is subscribes, and includes virtual hosts of route configurations that the proxy
// does not have yet.
func (l *Ledger) willSubscribe(k kind, name string) bool {
	if l.subscribes(k, name) {
		return true
	}
	if k != vhds {
		return false
	}
	rc := table.RouteConfigOf(name)
	return l.toLoad.Has(rc) || l.claimedRoutes.Has(rc) || l.watches[rds].names.Has(rc)
}

func (l *Ledger) statusOfRemoved(w *watch, name string) ResourceStatus {
	worst := Has
	for i, s := range l.states {
		for n, rev := range s.Removed(w.typ, w.acked(i).rem) {
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

// Since returns the newest revision of which the proxy may have the resource.
func (h *Held) Since() model.Revision { return h.since }

// heldOf returns the refusal that holds an entry back, or nil. That of a whole response covers
// everything that came with it.
func (l *Ledger) heldOf(w *watch, e *table.Entry) *Held {
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
func (l *Ledger) Refusal(t resource.Type, name string) *Held {
	k, ok := l.watchOf(t)
	if !ok || !l.willSubscribe(k, name) {
		return nil
	}
	return l.heldOf(&l.watches[k], l.lookup(t, name))
}

func (w *watch) inGroups(name string) bool {
	return slices.ContainsFunc(w.groups, func(g []string) bool { return slices.Contains(g, name) })
}

func (f *flight) has(name string) bool {
	for e := range f.entries() {
		if e.Name == name {
			return true
		}
	}
	return slices.Contains(f.removed, name)
}

// Missing returns at most n clusters whose endpoints listeners and routes wait for: the proxy did
// not request them, or was not sent them.
func (l *Ledger) Missing(n int) []string {
	if !l.watches[cds].on || !l.watches[cds].wildcard {
		return nil
	}
	var out []string
	look := func(cluster string) bool {
		there := l.lookup(resource.Endpoints, cluster) != nil && l.watches[cds].held[cluster] == nil
		if s := l.Status(resource.Endpoints, cluster); there && s != Has && s != Refused && !slices.Contains(out, cluster) {
			out = append(out, cluster)
		}
		return len(out) < n
	}
	for i, s := range l.states {
		open := l.ordering.open[i]
		if l.ordering.endpointsUnknown {
			open = 0
		}
		for c := range s.Changed(resource.Cluster, open) {
			if c.Added > open && !look(c.Name) {
				return out
			}
		}
	}
	for cluster := range l.ordering.awaited.All() {
		if !look(cluster) {
			return out
		}
	}
	return out
}

// Behind reports whether anything of a type is not ACKed.
func (l *Ledger) Behind(t resource.Type) bool {
	k, ok := l.watchOf(t)
	return ok && l.completeUpTo(k, true) != always
}

// HasSince reports whether the proxy has a resource as it was at a revision, or newer; also if it
// does not subscribe to it.
func (l *Ledger) HasSince(t resource.Type, name string, rev model.Revision) bool {
	k, ok := l.watchOf(t)
	if !ok || !l.willSubscribe(k, name) {
		return true
	}
	w := &l.watches[k]
	if h := w.held[name]; h != nil && h.since < rev {
		return false
	}
	if w.firstPending || w.toSend.Has(name) || w.inGroups(name) || !l.subscribes(k, name) || w.toRemove.Has(name) && !l.fullState(w) ||
		w.flight != nil && w.flight.explicit && w.flight.has(name) {
		return false
	}
	for i, s := range l.states {
		if e := s.Get(t, name); e != nil {
			return w.acked(i).add >= rev || e.Revision <= w.acked(i).add
		}
	}
	return l.statusOfRemoved(w, name) == Has
}

// Refuses reports whether any resource is held back.
func (l *Ledger) Refuses() bool {
	for k := range kinds {
		if len(l.watches[k].held) > 0 {
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
	Held       []Held
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
		if w.flight == nil && l.limit(k) != always && (w.firstPending || !l.upToDate(w) || !w.idle()) {
			t.Waiting = "clusters and their endpoints"
			if l.limitOfClusters() == always {
				t.Waiting = "scopes and their routes"
			}
		} else if k == cds && w.flight == nil && (w.toRemove != nil || !l.upToDate(w)) {
			t.Waiting = "listeners and routes, to remove clusters"
		}
		for _, h := range w.held {
			t.Held = append(t.Held, *h)
		}
		out = append(out, t)
	}
	return out
}
