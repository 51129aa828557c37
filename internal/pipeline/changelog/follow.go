package changelog

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/moonsail/moonsail/internal/model"
)

// followers wait for changes: for an object's to begin, or for a revision to be distributed.
type followers struct {
	count atomic.Int32 // of them all: while it is 0, nobody looks further

	mu     sync.Mutex // guards the fields below
	begins map[model.Key][]chan model.Revision
	ends   map[model.Revision][]chan struct{}
}

// Following is somebody who waits for the next change of an object.
type Following struct {
	log *Log
	key model.Key
	rev chan model.Revision // holds one value
}

// Follow waits for a change of an object that begins from now on. Stop must be called.
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

// Began gives the revision of the change, once.
func (f *Following) Began() <-chan model.Revision { return f.rev }

// Stop ends it.
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

// Await waits until every proxy that a revision concerned has answered or is gone, or until
// ctx ends. What the log has forgotten is not waited for.
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
	// Looked at after the followers have it: who finishes a revision looks there afterwards.
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

// began tells those who wait for changes of these objects.
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
			default: // it has got one
			}
		}
	}
}

// ended tells those who wait for a revision.
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
