package ledger

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// ResourceStatus is how far one resource, as it is in the tables now, has come on a stream.
type ResourceStatus uint8

// The standings, the later the further behind.
const (
	NotSubscribed ResourceStatus = iota
	Has                          // the proxy has ACKed its newest form, or that it is gone
	Unanswered                   // it was sent, and neither ACKed nor refused
	Unsent                       // its newest form was not sent yet
	Refused                      // it is held back until it differs
)

// String is the standing in words.
func (s ResourceStatus) String() string {
	return [...]string{"not subscribed", "ACKed", "sent", "not sent", "refused"}[s]
}

// ResourceStatus answers for one resource, at a cost that does not depend on how many there are
// but for what is in flight. It changes nothing.
func (l *Ledger) Status(t resource.Type, name string) ResourceStatus {
	k, ok := l.watchOf(t)
	if !ok || !l.follows(k, name) {
		return NotSubscribed
	}
	w, e := &l.watches[k], l.lookup(t, name)
	switch {
	case l.heldOf(w, e) != nil:
		return Refused
	case w.answer || w.todo.Has(name) || w.inGroups(name) || !l.subscribes(k, name):
		return Unsent
	case w.gone.Has(name) && (e == nil || !l.whole(w)): // one that came again is sent again, but with all others where they are sent whole
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

// whole tells whether responses must have everything.
func (l *Ledger) whole(w *watch) bool { return l.protocol == Sotw && resource.Types[w.typ].FullState }

// watchOf finds the watch of a type; none for the types of another route strategy.
func (l *Ledger) watchOf(t resource.Type) (kind, bool) {
	k := kindsOf[t]
	return k, l.watches[k].typ == t && l.watches[k].on
}

// follows is subscribes, and tells also of virtual hosts that will come with a route
// configuration which the proxy does not hold yet.
func (l *Ledger) follows(k kind, name string) bool {
	if l.subscribes(k, name) {
		return true
	}
	if k != vhds {
		return false
	}
	rc := table.RouteConfigOf(name)
	return l.load.Has(rc) || l.kept.Has(rc) || l.watches[rds].names.Has(rc)
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

// against compares a revision with the cursors of what was sent and of what was ACKed.
func against(rev, sent, acked model.Revision) ResourceStatus {
	switch {
	case rev > sent:
		return Unsent
	case rev > acked:
		return Unanswered
	}
	return Has
}

// Whole is the name under which a refused state-of-the-world response is held, where
// Envoy's message does not tell which of its resources it refused.
const Whole = "?"

// Since is the newest revision of which the proxy may have the resource.
func (h *Held) Since() model.Revision { return h.since }

// heldOf is the refusal that holds an entry back; nil: none. That of a whole response stands
// for all that came with it.
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

// Refusal is why a resource is held back; nil where it is not, or is not subscribed: what was refused of a
// route configuration is remembered while the proxy does not have that.
func (l *Ledger) Refusal(t resource.Type, name string) *Held {
	k, ok := l.watchOf(t)
	if !ok || !l.follows(k, name) {
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

// Missing are clusters, at most n, whose endpoints listeners and routes wait for: the
// proxy has not asked for them, or was not sent them.
func (l *Ledger) Missing(n int) []string {
	if !l.watches[cds].on || !l.watches[cds].wild {
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
		if l.ordering.untold {
			open = 0
		}
		for c := range s.Changed(resource.Cluster, open) {
			if c.Added > open && !look(c.Name) {
				return out
			}
		}
	}
	for cluster := range l.ordering.fresh.All() {
		if !look(cluster) {
			return out
		}
	}
	return out
}

// Behind tells whether anything of a type is not ACKed.
func (l *Ledger) Behind(t resource.Type) bool {
	k, ok := l.watchOf(t)
	return ok && l.floor(k, true) != always
}

// HasSince tells whether the proxy has a resource as it was at a revision, or as it became
// later; true where it does not subscribe to it.
func (l *Ledger) HasSince(t resource.Type, name string, rev model.Revision) bool {
	k, ok := l.watchOf(t)
	if !ok || !l.follows(k, name) {
		return true
	}
	w := &l.watches[k]
	if h := w.held[name]; h != nil && h.since < rev {
		return false
	}
	if w.answer || w.todo.Has(name) || w.inGroups(name) || !l.subscribes(k, name) || w.gone.Has(name) && !l.whole(w) ||
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

// Refuses tells whether any resource is held back.
func (l *Ledger) Refuses() bool {
	for k := range kinds {
		if len(l.watches[k].held) > 0 {
			return true
		}
	}
	return false
}
