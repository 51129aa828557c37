package changelog

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/moonsail/moonsail/internal/model"
)

// followers wait for the next change of an object, or until a revision is distributed.
type followers struct {
	count atomic.Int32 // of all followers; while it is 0, began and ended take no lock

	mu     sync.Mutex // guards the fields below
	begins map[model.Key][]chan model.Revision
	ends   map[model.Revision][]chan struct{}
}

// Following waits for the next change of an object.
type Following struct {
	log *Log
	key model.Key
	rev chan model.Revision // holds one value
}

// Follow waits for a change of an object that begins from now on. The caller must call Stop.
func (l *Log) Follow(k model.Key) *Following {
	f := &Following{log: l, key: k, rev: make(chan model.Revision, 1)}
	w := &l.followers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begins == nil {
		w.begins = map[model.Key][]chan model.Revision{}
	}
	w.begins[k] = append(w.begins[k], f.rev)
	w.count.Add(1)
	return f
}

// Began receives the revision of the change, once.
func (f *Following) Began() <-chan model.Revision { return f.rev }

// Stop ends the wait.
func (f *Following) Stop() {
	w := &f.log.followers
	w.mu.Lock()
	defer w.mu.Unlock()
	list := slices.DeleteFunc(w.begins[f.key], func(c chan model.Revision) bool { return c == f.rev })
	if w.begins[f.key] = list; len(list) == 0 {
		delete(w.begins, f.key)
	}
	w.count.Add(-1)
}

// Await waits until every proxy concerned by a revision has answered or disconnected, or until ctx ends.
// It returns at once if the log no longer has the revision.
func (l *Log) Await(ctx context.Context, rev model.Revision) error {
	done := make(chan struct{})
	w := &l.followers
	w.mu.Lock()
	if w.ends == nil {
		w.ends = map[model.Revision][]chan struct{}{}
	}
	w.ends[rev] = append(w.ends[rev], done)
	w.count.Add(1)
	w.mu.Unlock()
	defer w.leave(rev, done)
	// Order: check after registering. A goroutine that finishes the revision later finds this follower.
	if r := l.find(rev); r == nil || r.distributed() {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *followers) leave(rev model.Revision, done chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := slices.DeleteFunc(w.ends[rev], func(c chan struct{}) bool { return c == done })
	if w.ends[rev] = list; len(list) == 0 {
		delete(w.ends, rev)
	}
	w.count.Add(-1)
}

// began wakes the followers of these objects.
func (w *followers) began(rev model.Revision, objects []ChangedObject) {
	if w.count.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range objects {
		for _, c := range w.begins[objects[i].Key] {
			select {
			case c <- rev:
			default: // it has received a revision
			}
		}
	}
}

// ended wakes the followers of a revision.
func (w *followers) ended(rev model.Revision) {
	if w.count.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.ends[rev] {
		close(c)
	}
	delete(w.ends, rev)
}
