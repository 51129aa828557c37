package table

import (
	"iter"
	"sort"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

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
