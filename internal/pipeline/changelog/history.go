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

// objectIndex has the last change of each object, also if the log no longer has the change itself. A
// deleted object leaves the index when its change leaves the log. So the number of objects and the size
// of the log bound the index.
type objectIndex struct {
	mu      sync.Mutex // guards the fields
	last    map[model.Key]lastChange
	deleted []deletedObject // in the order of revisions
}

// lastChange is a LastChange in less memory: there is one for each object of the mesh.
type lastChange struct {
	rev                 model.Revision
	version             string
	observed, committed int64 // nanoseconds since 1970; 0: not known
	operation           Operation
	moved               bool
}

type deletedObject struct {
	key model.Key
	rev model.Revision
}

// note records a batch, and forgets the objects that were deleted at revision oldest or before.
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
			x.deleted = append(x.deleted, deletedObject{o.Key, rev})
		}
	}
	for len(x.deleted) > 0 && x.deleted[0].rev <= oldest {
		if d := x.deleted[0]; x.last[d.key].rev == d.rev {
			delete(x.last, d.key)
		}
		x.deleted = x.deleted[1:]
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

// LastChange returns the newest change of an object; false: it has none, or it was deleted so long ago
// that the log has forgotten it.
func (l *Log) LastChange(k model.Key) (LastChange, bool) {
	l.objects.mu.Lock()
	defer l.objects.mu.Unlock()
	c, ok := l.objects.last[k]
	return LastChange{c.rev, c.operation, c.version, c.moved, moment(c.observed), moment(c.committed)}, ok
}

// Deleted returns the objects of a kind whose last change is their deletion, the oldest first, as far as the log has them.
func (l *Log) Deleted(kind model.Kind) []model.Key {
	x := &l.objects
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []model.Key
	for _, d := range x.deleted {
		if last, ok := x.last[d.key]; ok && last.rev == d.rev && d.key.Kind == kind {
			out = append(out, d.key)
		}
	}
	return out
}

// RemovedEndpoint is an address that must receive no more requests: it is no longer listed, or not ready.
type RemovedEndpoint struct {
	Revision model.Revision
	Observed time.Time
	Address  string
	Object   model.Key // the object that listed it
	// Service is the Kubernetes Service of the endpoint. Labels are those of a WorkloadEntry, which
	// selectors match. Hosts are those of a ServiceEntry.
	Service model.Key
	Labels  map[string]string
	Hosts   []model.Host
}

// removals remembers the newest maxRemovals removed endpoints.
type removals struct {
	mu   sync.Mutex        // guards the fields
	ring []RemovedEndpoint // in the order of revisions; once full, the oldest is at next
	next int
}

const maxRemovals = 8192

// Removed records removed endpoints. The engine calls it in the order of revisions.
func (l *Log) Removed(list []RemovedEndpoint) {
	r := &l.removals
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range list {
		if len(r.ring) < maxRemovals {
			r.ring = append(r.ring, e)
			continue
		}
		r.ring[r.next] = e
		r.next = (r.next + 1) % maxRemovals
	}
}

// RemovedEndpoints returns the endpoints that were removed after a revision, oldest first, as far as the
// log remembers them.
func (l *Log) RemovedEndpoints(after model.Revision) []RemovedEndpoint {
	r := &l.removals
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []RemovedEndpoint
	for i := range r.ring {
		if e := r.ring[(r.next+i)%len(r.ring)]; e.Revision > after {
			out = append(out, e)
		}
	}
	return out
}
