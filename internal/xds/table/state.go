package table

import (
	"iter"
	"sort"
	"sync"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// State is a table as of one revision; immutable.
type State struct {
	// Revision is that of the last commit that changed anything.
	Revision model.Revision

	table   *Table
	opened  model.Revision
	columns [resource.NumTypes]*column

	batches batches

	mu    sync.Mutex // guards the map, not its content
	memos map[any]*memo
}

// memo is something that streams work out from a state.
type memo struct {
	once  sync.Once
	value any
}

// maxMemos bounds what a state remembers of what streams work out.
const maxMemos = 128

// Memo gives what was worked out under a key, or has it worked out. Streams in the same
// situation share it; it goes with the state. The key must be comparable.
func (s *State) Memo(key any, work func() any) any {
	s.mu.Lock()
	m := s.memos[key]
	if m == nil {
		m = &memo{}
		if s.memos == nil {
			s.memos = map[any]*memo{}
		}
		if len(s.memos) < maxMemos {
			s.memos[key] = m
		}
	}
	s.mu.Unlock()
	m.once.Do(func() { m.value = work() })
	return m.value
}

// Table is the table that this is a state of.
func (s *State) Table() *Table { return s.table }

// Opened is the revision of the table's first commit: what it has of that revision may have
// changed long before.
func (s *State) Opened() model.Revision { return s.opened }

// Get gives a live entry, or nil.
func (s *State) Get(t resource.Type, name string) *Entry { return s.columns[t].get(name) }

// GetBytes is Get for a name in a request's buffer.
func (s *State) GetBytes(t resource.Type, name []byte) *Entry {
	e, _ := s.columns[t].live.Get(name)
	return e
}

// Len is the number of live entries.
func (s *State) Len(t resource.Type) int { return s.columns[t].live.Len() }

// Sum is the sum of the live entries' Hash: equal for equal names and versions.
func (s *State) Sum(t resource.Type) uint64 { return s.columns[t].sum }

// LastAdded is the revision in which a new name came last: the make-before-break barrier.
func (s *State) LastAdded(t resource.Type) model.Revision { return s.columns[t].lastAdded }

// LastChanged is the revision in which an entry was added or changed last.
func (s *State) LastChanged(t resource.Type) model.Revision { return s.columns[t].lastChange }

// LastRemoved is the revision in which an entry was removed last.
func (s *State) LastRemoved(t resource.Type) model.Revision { return s.columns[t].lastRemove }

// Forgotten is the revision up to which removals are not remembered: a cursor before
// it must be brought up to date by comparison with everything.
func (s *State) Forgotten(t resource.Type) model.Revision { return s.columns[t].forgotten }

// Changed gives the live entries that came to be as they are after a revision, in the
// order of their revisions.
func (s *State) Changed(t resource.Type, after model.Revision) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		log := s.columns[t].log
		if after >= s.columns[t].lastChange {
			return
		}
		i := sort.Search(len(log), func(i int) bool { return log[i].Revision > after })
		for _, e := range log[i:] {
			if e.liveAt(s.Revision) && !yield(e) {
				return
			}
		}
	}
}

// Removed gives the names that went after a revision and did not come again, in the
// order of their revisions.
func (s *State) Removed(t resource.Type, after model.Revision) iter.Seq2[string, model.Revision] {
	return func(yield func(string, model.Revision) bool) {
		graves := s.columns[t].graves
		if after >= s.columns[t].lastRemove {
			return
		}
		i := sort.Search(len(graves), func(i int) bool { return graves[i].rev > after })
		for _, g := range graves[i:] {
			if g.standsAt(s.Revision) && !yield(g.name, g.rev) {
				return
			}
		}
	}
}

// All gives the live entries in the order of their names.
func (s *State) All(t resource.Type) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		s.columns[t].live.Root().Walk(func(_ []byte, e *Entry) bool { return !yield(e) })
	}
}

// VirtualHosts gives the virtual hosts of a route configuration.
func (s *State) VirtualHosts(routeConfig string) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		more := true
		s.columns[resource.VirtualHost].under(routeConfig).each(func(e *Entry) { more = more && yield(e) })
	}
}
