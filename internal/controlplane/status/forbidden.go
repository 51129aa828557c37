package status

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moonsail/moonsail/internal/model"
)

// setAside holds back all objects of an object's resource, and queues that one among them.
func (b *Board) setAside(k model.Key) (r schema.GroupVersionResource, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.objects[k]
	if o == nil {
		return r, false
	}
	r = o.seen.Resource
	b.aside[r] = nil
	b.review(k, o)
	return r, true
}

// holdBack tells whether an object that was taken from the queue waits for its resource; mu is held.
func (b *Board) holdBack(k model.Key, o *object) bool {
	held, is := b.aside[o.seen.Resource]
	if is {
		b.aside[o.seen.Resource] = append(held, k)
	}
	return is
}

// release queues what was set aside of a resource.
func (b *Board) release(r schema.GroupVersionResource) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := b.aside[r]
	delete(b.aside, r)
	b.queue = append(b.queue, held...)
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// unqueue forgets an object that is queued; mu is held.
func (b *Board) unqueue(k model.Key) {
	is := func(q model.Key) bool { return q == k }
	b.queue = slices.DeleteFunc(b.queue, is)
	for r, held := range b.aside {
		b.aside[r] = slices.DeleteFunc(held, is)
	}
}
