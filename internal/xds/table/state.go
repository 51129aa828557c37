package table

import (
	"iter"
	"sort"
	"sync"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// State is a table at one revision. It is immutable.
type State struct {
	// Revision is the last revision that changed anything.
	Revision model.Revision

	table   *Table
	opened  model.Revision
	columns [resource.NumTypes]*column

	batches batches

	mu    sync.Mutex // guards the map, not its values
	memos map[any]*memo
}

// memo is a result that streams computed from a state.
type memo struct {
	once  sync.Once
	value any
}

// maxMemos bounds the results that a state remembers.
const maxMemos = 128

// Memo returns the result that was computed for a key, or computes it. Streams in the same
// situation share it, for the life of the state. The key must be comparable.
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

// Table returns the table of the state.
func (s *State) Table() *Table { return s.table }

// Opened returns the revision of the table's first commit. Resources of that revision may have
// changed long before.
func (s *State) Opened() model.Revision { return s.opened }

// Get returns a live entry, or nil.
func (s *State) Get(t resource.Type, name string) *Entry { return s.columns[t].get(name) }

// GetBytes is Get for a name in a request's buffer.
func (s *State) GetBytes(t resource.Type, name []byte) *Entry {
	e, _ := s.columns[t].live.Get(name)
	return e
}

// Len returns the number of live entries.
func (s *State) Len(t resource.Type) int { return s.columns[t].live.Len() }

// Sum returns the sum of the live entries' Hash. It is equal for equal names and versions.
func (s *State) Sum(t resource.Type) uint64 { return s.columns[t].sum }

// LastAdded returns the revision in which a name was last added: the barrier of make-before-break.
func (s *State) LastAdded(t resource.Type) model.Revision { return s.columns[t].lastAdded }

// LastChanged returns the revision in which an entry was last added or changed.
func (s *State) LastChanged(t resource.Type) model.Revision { return s.columns[t].lastChange }

// LastRemoved returns the revision in which an entry was last removed.
func (s *State) LastRemoved(t resource.Type) model.Revision { return s.columns[t].lastRemove }

// Forgotten returns the revision up to which removals are forgotten. A cursor before it must be
// compared with the whole state.
func (s *State) Forgotten(t resource.Type) model.Revision { return s.columns[t].forgotten }

// Changed returns the live entries that changed after a revision, in the order of their revisions.
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

// Removed returns the names that were removed after a revision and do not exist, in the order of
// their revisions.
func (s *State) Removed(t resource.Type, after model.Revision) iter.Seq2[string, model.Revision] {
	return s.RemovedCarried(t, after, false, nil)
}

// RemovedCarried is Removed. With partial, it leaves out clusters on demand that are not in carried. It can be inlined, so
// that the state of a loop over it stays on the stack.
func (s *State) RemovedCarried(t resource.Type, after model.Revision, partial bool, carried *names.Set) iter.Seq2[string, model.Revision] {
	return func(yield func(string, model.Revision) bool) {
		graves := s.columns[t].graves
		if after >= s.columns[t].lastRemove {
			return
		}
		i := sort.Search(len(graves), func(i int) bool { return graves[i].rev > after })
		for _, g := range graves[i:] {
			left := partial && g.isOnDemand() && !carried.Has(g.name)
			if !left && g.standsAt(s.Revision) && !yield(g.name, g.rev) {
				return
			}
		}
	}
}

// LastMadeOnDemand returns the revision in which a name that had another form last became a cluster on demand.
func (s *State) LastMadeOnDemand() model.Revision {
	return s.columns[resource.Cluster].lastMadeOnDemand
}

// MadeOnDemand returns the clusters that changed after a revision, are on demand or were when they were removed, and had a
// form that is not on demand until after the revision until.
func (s *State) MadeOnDemand(after, until model.Revision) (out []string) {
	for e := range s.Changed(resource.Cluster, after) {
		if e.notOnDemandUntil > until {
			out = append(out, e.Name)
		}
	}
	graves := s.columns[resource.Cluster].graves
	i := sort.Search(len(graves), func(i int) bool { return graves[i].rev > after })
	for _, g := range graves[i:] {
		if g.isOnDemand() && g.notOnDemandUntil > until && g.standsAt(s.Revision) {
			out = append(out, g.name)
		}
	}
	return out
}

// NotOnDemand returns the clusters that are not sent on demand. The streams of a state share the list.
func (s *State) NotOnDemand() []*Entry {
	return s.Memo(notOnDemandKey{}, func() any {
		var out []*Entry
		for e := range s.All(resource.Cluster) {
			if !e.IsOnDemand() {
				out = append(out, e)
			}
		}
		return out
	}).([]*Entry)
}

type notOnDemandKey struct{}

// All returns the live entries in the order of their names.
func (s *State) All(t resource.Type) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		s.columns[t].live.Root().Walk(func(_ []byte, e *Entry) bool { return !yield(e) })
	}
}

// VirtualHosts returns the virtual hosts of a route configuration.
func (s *State) VirtualHosts(routeConfig string) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		more := true
		s.columns[resource.VirtualHost].under(routeConfig).each(func(e *Entry) { more = more && yield(e) })
	}
}

// Touch is a change of one name by one revision.
type Touch struct {
	Name    string
	Removed bool
	// Superseded: a newer revision has changed the name again.
	Superseded bool

	now, was *model.Origins
}

// By reports whether a change of an object may be the cause, see Entry.ChangedBy.
func (t *Touch) By(k model.Key) bool { return t.now.Has(k) || t.was.Has(k) }

// Touched returns what a revision changed in a type, as far as it is remembered: changes that were
// superseded long ago are not. Its cost is in proportion to what the revision changed.
func (s *State) Touched(t resource.Type, rev model.Revision) iter.Seq[Touch] {
	return func(yield func(Touch) bool) {
		log := s.columns[t].log
		for i := sort.Search(len(log), func(i int) bool { return log[i].Revision >= rev }); i < len(log) && log[i].Revision == rev; i++ {
			if !yield(Touch{Name: log[i].Name, Superseded: !log[i].liveAt(s.Revision), now: log[i].MadeFrom(), was: log[i].was}) {
				return
			}
		}
		graves := s.columns[t].graves
		for i := sort.Search(len(graves), func(i int) bool { return graves[i].rev >= rev }); i < len(graves) && graves[i].rev == rev; i++ {
			if !yield(Touch{Name: graves[i].name, Removed: true, Superseded: !graves[i].standsAt(s.Revision), was: graves[i].was}) {
				return
			}
		}
	}
}
