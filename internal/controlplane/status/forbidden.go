package status

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moonsail/moonsail/internal/model"
)

// setAside holds back all objects of an object's resource, and queues this object among them.
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

// holdBack reports whether an object from the queue waits for its resource. The caller holds mu.
func (b *Board) holdBack(k model.Key, o *object) bool {
	held, is := b.aside[o.seen.Resource]
	if is {
		b.aside[o.seen.Resource] = append(held, k)
	}
	return is
}

// release queues the objects of a resource that were set aside.
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

// unqueue removes an object from the queue. The caller holds mu.
func (b *Board) unqueue(k model.Key) {
	is := func(q model.Key) bool { return q == k }
	b.queue = slices.DeleteFunc(b.queue, is)
	for r, held := range b.aside {
		b.aside[r] = slices.DeleteFunc(held, is)
	}
}
