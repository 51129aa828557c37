package table

import (
	"sync/atomic"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Entry is a resource in one form. All states in which it is live share it. It is immutable, except
// for its origins.
type Entry struct {
	Name    string
	Version string
	// Revision is the revision in which the resource got this form, and Added that in which its
	// name was added.
	Revision, Added model.Revision
	// notOnDemandUntil is, of a cluster on demand, the revision in which the last form of its name
	// ended that is not on demand; 0: none is known.
	notOnDemandUntil model.Revision

	resource *resource.Encoded // nil where whole is set
	whole    *assembly

	// replaced is the revision in which another entry replaced this one, or the name was removed;
	// 0: neither. The writer sets it before it publishes the state of that revision. Readers of an
	// older state see 0, or a number beyond their own revision.
	replaced atomic.Uint64

	// origins are the objects that the resource is made from, as of the newest state. If other
	// objects give the same bytes, the entry stays. was are the origins of the previous entry.
	origins atomic.Pointer[model.Origins]
	was     *model.Origins
}

// newEntry returns a live entry, which the writer completes.
func newEntry(name string, r *resource.Encoded, from *model.Origins) *Entry {
	e := &Entry{Name: name, Version: r.Version, resource: r}
	e.origins.Store(from)
	return e
}

// MadeFrom returns the objects that the resource is made from. For a whole route configuration
// these are the objects of its header; its virtual hosts are entries too.
func (e *Entry) MadeFrom() *model.Origins { return e.origins.Load() }

// WasMadeFrom returns the objects that the previous entry was made from, when it ended; nil for the
// first entry of a name.
func (e *Entry) WasMadeFrom() *model.Origins { return e.was }

// ChangedBy reports whether a change of an object may have caused the entry: the entry, or the
// previous one, is made from it.
func (e *Entry) ChangedBy(k model.Key) bool { return e.MadeFrom().Has(k) || e.was.Has(k) }

// Resource returns the encoded resource. A whole route configuration is joined when it is first
// requested.
func (e *Entry) Resource() *resource.Encoded {
	if e.whole != nil {
		return e.whole.resource(e)
	}
	return e.resource
}

// IsOnDemand reports whether the entry is a cluster that is sent on demand.
func (e *Entry) IsOnDemand() bool { return resource.IsOnDemand(e.Version) }

// liveAt reports whether the entry is part of the state of a revision, which must not be older than
// the entry.
func (e *Entry) liveAt(rev model.Revision) bool {
	r := e.replaced.Load()
	return r == 0 || r > uint64(rev)
}

// tombstone is the removal of a name.
type tombstone struct {
	name string
	rev  model.Revision
	was  *model.Origins // of the removed entry
	// notOnDemandUntil is that of the removed entry, or rev if the entry is not on demand.
	notOnDemandUntil model.Revision
	// undone is the revision in which the name was added again; 0: it was not. It is written like
	// Entry.replaced.
	undone atomic.Uint64
}

// isOnDemand reports whether the removed entry was a cluster on demand.
func (g *tombstone) isOnDemand() bool { return g.notOnDemandUntil != g.rev }

func (g *tombstone) standsAt(rev model.Revision) bool {
	r := g.undone.Load()
	return r == 0 || r > uint64(rev)
}
