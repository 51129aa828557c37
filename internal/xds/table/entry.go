package table

import (
	"sync/atomic"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Entry is one resource as it is from one revision on. It is shared by all states in which it is
// live, and immutable but for what it was made from.
type Entry struct {
	Name    string
	Version string
	// Revision is the one in which the resource came to be as it is; Added that in
	// which its name came (again).
	Revision, Added model.Revision

	resource *resource.Encoded // nil where whole is set
	whole    *assembly

	// replaced is the revision from which on another entry or none has this name; 0:
	// none yet. Only the writer sets it, before it publishes that revision's state:
	// who reads an older state sees a number beyond its own revision, or 0.
	replaced atomic.Uint64

	// origins are the objects that the resource is made from, as of the newest state: other objects
	// may come to give the same bytes, which is no change. was are those of the entry before.
	origins atomic.Pointer[model.Origins]
	was     *model.Origins
}

// newEntry makes a live entry; the writer completes it.
func newEntry(name string, r *resource.Encoded, from *model.Origins) *Entry {
	e := &Entry{Name: name, Version: r.Version, resource: r}
	e.origins.Store(from)
	return e
}

// MadeFrom are the objects that the resource is made from. Of a whole route configuration they are
// those without its virtual hosts, which are entries themselves.
func (e *Entry) MadeFrom() *model.Origins { return e.origins.Load() }

// WasMadeFrom are the objects that the entry before was made from, as of its end; nil if the entry is
// the first of its name.
func (e *Entry) WasMadeFrom() *model.Origins { return e.was }

// ChangedBy reports whether the entry may have come to be as it is by a change of an object: one that
// it is made from, or that the entry before it was made from.
func (e *Entry) ChangedBy(k model.Key) bool { return e.MadeFrom().Has(k) || e.was.Has(k) }

// Resource is the encoded resource. A whole route configuration is put together when
// it is first asked for.
func (e *Entry) Resource() *resource.Encoded {
	if e.whole != nil {
		return e.whole.resource(e)
	}
	return e.resource
}

// liveAt tells whether the entry is part of a state of the given revision, which must
// not be before the entry's own.
func (e *Entry) liveAt(rev model.Revision) bool {
	r := e.replaced.Load()
	return r == 0 || r > uint64(rev)
}

// tombstone is a name that is gone since a revision.
type tombstone struct {
	name string
	rev  model.Revision
	was  *model.Origins // of the entry that went
	// undone is the revision in which the name came again; 0: it has not. Written as
	// Entry.replaced is.
	undone atomic.Uint64
}

func (g *tombstone) standsAt(rev model.Revision) bool {
	r := g.undone.Load()
	return r == 0 || r > uint64(rev)
}
