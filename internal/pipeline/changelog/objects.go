package changelog

import (
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// LastChange is the newest change of one object.
type LastChange struct {
	Revision        model.Revision
	Operation       Operation
	ResourceVersion string
	// Moved, Observed and Committed are as in ChangedObject.
	Moved               bool
	Observed, Committed time.Time
}

// objectIndex knows the last change of each object, also where the change itself has left
// the log. Deleted objects are forgotten with their change, so that the index is bounded by
// the number of objects and the size of the log.
type objectIndex struct {
	mu   sync.Mutex // guards the fields
	last map[model.Key]lastChange
	gone []goneObject // in the order of revisions
}

// lastChange is a LastChange as it is kept: there is one for each object of the mesh.
type lastChange struct {
	rev                 model.Revision
	version             string
	observed, committed int64 // nanoseconds since 1970; 0: not known
	operation           Operation
	moved               bool
}

type goneObject struct {
	key model.Key
	rev model.Revision
}

// note takes a batch; what was deleted at oldest or before is forgotten.
func (x *objectIndex) note(rev model.Revision, objects []ChangedObject, observed time.Time, oldest model.Revision) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last == nil {
		x.last = map[model.Key]lastChange{}
	}
	for i := range objects {
		o := &objects[i]
		c := lastChange{rev: rev, version: o.ResourceVersion, operation: o.Operation, moved: o.Moved, observed: nanos(o.Observed), committed: nanos(o.Committed)}
		if c.observed == 0 {
			c.observed = nanos(observed)
		}
		x.last[o.Key] = c
		if o.Operation == Deleted {
			x.gone = append(x.gone, goneObject{o.Key, rev})
		}
	}
	for len(x.gone) > 0 && x.gone[0].rev <= oldest {
		if g := x.gone[0]; x.last[g.key].rev == g.rev {
			delete(x.last, g.key)
		}
		x.gone = x.gone[1:]
	}
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func moment(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}

// LastChange is the newest change of an object; false where it has none, or was deleted
// so long ago that the log has forgotten it.
func (l *Log) LastChange(k model.Key) (LastChange, bool) {
	l.objects.mu.Lock()
	defer l.objects.mu.Unlock()
	c, ok := l.objects.last[k]
	return LastChange{c.rev, c.operation, c.version, c.moved, moment(c.observed), moment(c.committed)}, ok
}
