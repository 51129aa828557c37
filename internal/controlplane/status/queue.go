package status

import (
	"context"

	"github.com/moonsail/moonsail/internal/model"
)

// review queues an object whose status should differ. The caller holds mu.
func (b *Board) review(k model.Key, o *object) {
	if o.queued || o.have.plan(o) == nil {
		return
	}
	o.queued = true
	b.queue = append(b.queue, k)
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// next waits for an object whose status should differ, and removes it from the queue. It returns false if
// ctx ends.
func (b *Board) next(ctx context.Context) (model.Key, bool) {
	for {
		if k, ok := b.pop(); ok {
			return k, true
		}
		select {
		case <-ctx.Done():
			return model.Key{}, false
		case <-b.wake:
		}
	}
}

func (b *Board) pop() (model.Key, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) > 0 {
		k := b.queue[0]
		b.queue = b.queue[1:]
		o := b.objects[k]
		if b.holdBack(k, o) {
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
func (b *Board) again(k model.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if o := b.objects[k]; o != nil {
		b.review(k, o)
	}
}

// Queued returns the number of objects in the queue.
func (b *Board) Queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.queue)
	for _, held := range b.aside {
		n += len(held)
	}
	return n
}
