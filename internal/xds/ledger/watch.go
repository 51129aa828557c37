package ledger

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// MaxTables is the number of tables that a stream can be bound to: outbound and inbound.
const MaxTables = 2

// always is a limit that admits every revision.
const always = ^model.Revision(0)

// cursor is what was sent of one table.
//
// Invariant: firm <= add. Changes between them may be missing: they changed again after add, while
// the ordering admitted only older updates.
type cursor struct {
	add  model.Revision // what came to be as it is up to here
	rem  model.Revision // removals up to here
	firm model.Revision // every change up to here, in this or a newer form
	// What waits to be removed is of this revision or newer. It may have changed after
	// it, and lost a reference, and been removed before that was sent. 0: nothing waits.
	wait model.Revision
}

// upTo returns the cursor of a proxy that has everything of a state.
func upTo(s *table.State) cursor { return cursor{add: s.Revision, rem: s.Revision, firm: s.Revision} }

// fromStart returns the cursor of a proxy that has nothing.
func fromStart(s *table.State) cursor { return cursor{rem: s.Revision} }

// watch is the state of one resource type on a stream.
type watch struct {
	typ          resource.Type
	on           bool // there was a request
	wildcard     bool // everything is subscribed
	firstPending bool // the first answer is owed, even where it is empty

	flight *flight    // nil: no response is unanswered
	nonce  uint64     // of the last response
	names  *names.Set // named subscriptions

	// What is to be sent whatever the cursors say. It is looked up when it is sent:
	// a name of todo that does not exist becomes one of gone, which is answered by a
	// removal when that is safe.
	toSend, toRemove *names.Set
	pendingSince     model.Revision // the revision at which these two, and groups, came to be; 0: they are empty

	at [MaxTables]cursor // what was sent

	groups [][]string       // parts of refused responses, sent one by one
	held   map[string]*Held // refused resources, by name

	// State-of-the-world.
	version string
	last    [MaxTables]*table.State // clusters: the states of the last response
	extras  map[string]*table.Entry // clusters: removed, but still in the last response
}

// Held is a resource that the proxy refused.
type Held struct {
	Name, Version string
	Message       string
	// since is the newest revision of which the proxy may have the resource: it may
	// refer to whatever was there then.
	since model.Revision
	again bool // it is to be sent once more, or was and is not answered
	tries int  // how often that was so
}

// holds reports whether an entry is held back.
func (w *watch) holds(e *table.Entry) bool {
	h := w.held[e.Name]
	return h != nil && h.Version == e.Version && !h.again
}

// acked returns the cursor of what the proxy is known to have accepted.
func (w *watch) acked(i int) cursor {
	if w.flight != nil {
		return w.flight.from[i]
	}
	return w.at[i]
}

// idle reports whether nothing is pending or in flight besides what the cursors describe.
func (w *watch) idle() bool {
	return w.toSend == nil && w.toRemove == nil && len(w.groups) == 0 && (w.flight == nil || !w.flight.explicit)
}

// notePending records that something is to be sent since a revision.
func (w *watch) notePending(rev model.Revision) {
	if w.pendingSince == 0 || w.pendingSince > rev {
		w.pendingSince = max(rev, 1)
	}
}

// subscribes reports whether the removal of a name concerns the stream.
func (l *Ledger) subscribes(k kind, name string) bool {
	w := &l.watches[k]
	if k == vhds {
		return l.synced.Has(table.RouteConfigOf(name)) || w.names.Has(name)
	}
	return w.wildcard || w.names.Has(name)
}

// filter returns the names that a batch is restricted to; nil for all. none reports that the proxy
// subscribes to no name.
func (l *Ledger) filter(k kind) (set *names.Set, none bool) {
	w := &l.watches[k]
	switch {
	case k == vhds:
		return l.synced, l.synced == nil
	case w.wildcard:
		return nil, false
	}
	return w.names, w.names == nil
}
