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

// exceeds reports whether a revision is beyond a limit. The revision always exceeds every limit but
// always.
func exceeds(rev, limit model.Revision) bool { return limit != always && rev > limit }

// cursor is what was sent of one table.
//
// Invariant: firm <= add. Changes between them may be missing: they changed again after add, while
// the ordering admitted only older updates.
type cursor struct {
	add  model.Revision // resources that changed last up to here were sent
	rem  model.Revision // removals up to here were sent
	firm model.Revision // every change up to here was sent, in this or a newer form
	// wait is the oldest revision of which a removal may wait; 0: none waits. The resource may
	// have changed after it, lost a reference, and been removed before that change was sent.
	wait model.Revision
}

// upTo returns the cursor of a proxy that has everything of a state.
func upTo(s *table.State) cursor { return cursor{add: s.Revision, rem: s.Revision, firm: s.Revision} }

// fromStart returns the cursor of a proxy that has nothing.
func fromStart(s *table.State) cursor { return cursor{rem: s.Revision} }

// watch is the state of one resource type on a stream.
type watch struct {
	typ          resource.Type
	on           bool // the proxy requested the type
	wildcard     bool // the proxy subscribes to everything
	firstPending bool // the first response is to be sent, even if it is empty

	flight  *flight     // nil: no response is unanswered
	nonce   uint64      // of the last response
	earlier *unanswered // the oldest of the responses before flight that are not answered either; nil: none
	names   *names.Set  // named subscriptions

	// toSend and toRemove are sent whatever the cursors are. Names are looked up when they are
	// sent: a name of toSend that does not exist moves to toRemove, and is answered by a removal
	// when that is safe.
	toSend, toRemove *names.Set
	pendingSince     model.Revision // the revision since which these two, and groups, have names; 0: they have none

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
	// since is the newest revision of which the proxy may have the resource: it may refer to
	// everything that existed then.
	since model.Revision
	nack  uint64 // number of the NACK on the stream
	retry bool   // it is to be sent once more, or was, and is not answered
	tries int    // number of retries
}

// Since returns the newest revision of which the proxy may have the resource.
func (h *Held) Since() model.Revision { return h.since }

// NACK returns the number of the NACK that refused the resource, among those of all types on the stream.
func (h *Held) NACK() uint64 { return h.nack }

// holds reports whether an entry is held back.
func (w *watch) holds(e *table.Entry) bool {
	h := w.held[e.Name]
	return h != nil && h.Version == e.Version && !h.retry
}

// idle reports whether nothing is pending or in flight besides what the cursors describe.
func (w *watch) idle() bool {
	return w.toSend == nil && w.toRemove == nil && len(w.groups) == 0 && !w.explicit()
}

// notePending records that something is to be sent since a revision.
func (w *watch) notePending(rev model.Revision) {
	if w.pendingSince == 0 || w.pendingSince > rev {
		w.pendingSince = max(rev, 1)
	}
}
