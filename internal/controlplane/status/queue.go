package status

import (
	"context"

	"github.com/moonsail/moonsail/internal/model"
)

// review queues an object whose status should differ. The caller holds mu.
func (t *Tracker) review(k model.Key, o *object) {
	if o.queued || o.have.plan(o) == nil {
		return
	}
	o.queued = true
	t.queue = append(t.queue, k)
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// next waits for an object whose status should differ, and removes it from the queue. It returns false if
// ctx ends.
func (t *Tracker) next(ctx context.Context) (model.Key, bool) {
	for {
		if k, ok := t.pop(); ok {
			return k, true
		}
		select {
		case <-ctx.Done():
			return model.Key{}, false
		case <-t.wake:
		}
	}
}

func (t *Tracker) pop() (model.Key, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.queue) > 0 {
		k := t.queue[0]
		t.queue = t.queue[1:]
		o := t.objects[k]
		if t.holdBack(k, o) {
			continue
		}
		o.queued = false
		if o.have.plan(o) != nil {
			return k, true
		}
	}
	return model.Key{}, false
}

// again queues an object whose status could not be written.
func (t *Tracker) again(k model.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o := t.objects[k]; o != nil {
		t.review(k, o)
	}
}

// Queued returns the number of objects in the queue.
func (t *Tracker) Queued() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.queue)
	for _, held := range t.suspended {
		n += len(held)
	}
	return n
}
