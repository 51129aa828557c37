package table

import (
	"sync/atomic"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Entry is one resource as it is from one revision on. It is immutable, and shared by
// all states in which it is live.
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
}

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
	// undone is the revision in which the name came again; 0: it has not. Written as
	// Entry.replaced is.
	undone atomic.Uint64
}

func (g *tombstone) standsAt(rev model.Revision) bool {
	r := g.undone.Load()
	return r == 0 || r > uint64(rev)
}
