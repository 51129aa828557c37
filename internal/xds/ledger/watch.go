package ledger

import (
	"cmp"
	"iter"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// MaxTables is the number of tables that a stream can be bound to: outbound and inbound.
const MaxTables = 2

// always is a limit that lets everything pass.
const always = ^model.Revision(0)

// cursor is what was sent of one table.
//
// Invariant: firm <= add. Between them something may be missing: what changed there and
// again beyond add, while the gate let only older updates pass.
type cursor struct {
	add  model.Revision // what came to be as it is up to here
	rem  model.Revision // removals up to here
	firm model.Revision // every change up to here, in this or a newer form
	// What waits to be removed is of this revision or newer. It may have changed after
	// it, and lost a reference, and been removed before that was sent. 0: nothing waits.
	wait model.Revision
}

// upTo is the cursor of a proxy that has everything of a state.
func upTo(s *table.State) cursor { return cursor{add: s.Revision, rem: s.Revision, firm: s.Revision} }

// fromStart is the cursor of one that has nothing.
func fromStart(s *table.State) cursor { return cursor{rem: s.Revision} }

// watch is the state of one resource type on a stream.
type watch struct {
	typ    resource.Type
	on     bool // there was a request
	wild   bool // everything is subscribed
	answer bool // the first answer is owed, even where it is empty

	flight *flight    // nil: no response is unanswered
	nonce  uint64     // of the last response
	names  *names.Set // named subscriptions

	// What is to be sent whatever the cursors say. It is looked up when it is sent:
	// a name of todo that does not exist becomes one of gone, which is answered by a
	// removal when that is safe.
	todo, gone *names.Set
	owes       model.Revision // the revision at which these two, and groups, came to be; 0: they are empty

	at [MaxTables]cursor // what was sent

	groups [][]string       // parts of refused responses, sent one by one
	held   map[string]*Held // refused resources, by name

	// State-of-the-world.
	version string
	last    [MaxTables]*table.State // clusters: the states of the last response
	extras  map[string]*table.Entry // clusters: removed, but still in the last response
}

// flight is a response that the proxy has not answered yet. Its nonce is that of its watch. Streams
// that were sent the same response share one flight, which saves memory: it must not be changed.
type flight struct {
	from     [MaxTables]cursor
	parts    [4]*table.Batch
	removed  []string
	explicit bool // it has names of todo, gone or groups
}

// shared gives the flight that another stream has, where it is the same: the last one that has sent the same batch.
func (f *flight) shared() *flight {
	var of *table.Batch
	for _, b := range f.parts {
		of = cmp.Or(of, b)
	}
	if of == nil || len(f.removed) > 0 {
		return f.own()
	}
	if last, ok := of.Memo.Load().(*flight); ok && last.from == f.from && last.parts == f.parts && last.explicit == f.explicit {
		return last
	}
	own := f.own()
	of.Memo.Store(own)
	return own
}

// own gives a copy.
func (f *flight) own() *flight {
	out := *f
	return &out
}

// entries are the resources of the response.
func (f *flight) entries() iter.Seq[*table.Entry] {
	return func(yield func(*table.Entry) bool) {
		for _, p := range f.parts {
			if p == nil {
				continue
			}
			for _, e := range p.Entries {
				if !yield(e) {
					return
				}
			}
		}
	}
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

// holds tells whether e is to be held back.
func (w *watch) holds(e *table.Entry) bool {
	h := w.held[e.Name]
	return h != nil && h.Version == e.Version && !h.again
}

// acked is the cursor of what is known to be accepted.
func (w *watch) acked(i int) cursor {
	if w.flight != nil {
		return w.flight.from[i]
	}
	return w.at[i]
}

// idle tells that nothing is owed or in flight but what the cursors say.
func (w *watch) idle() bool {
	return w.todo == nil && w.gone == nil && len(w.groups) == 0 && (w.flight == nil || !w.flight.explicit)
}

// owe notes that something is to be sent since a revision.
func (w *watch) owe(rev model.Revision) {
	if w.owes == 0 || w.owes > rev {
		w.owes = max(rev, 1)
	}
}

// subscribes tells whether a removed name concerns the stream.
func (l *Ledger) subscribes(k kind, name string) bool {
	w := &l.watches[k]
	if k == vhds {
		return l.synced.Has(table.RouteConfigOf(name)) || w.names.Has(name)
	}
	return w.wild || w.names.Has(name)
}

// filter is the names that a cursor's batch is restricted to.
func (l *Ledger) filter(k kind) (set *names.Set, none bool) {
	w := &l.watches[k]
	switch {
	case k == vhds:
		return l.synced, l.synced == nil
	case w.wild:
		return nil, false
	}
	return w.names, w.names == nil
}
