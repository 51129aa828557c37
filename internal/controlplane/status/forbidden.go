package status

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moonsail/moonsail/internal/model"
)

// suspend holds back all objects of an object's resource, and queues this object among them.
func (t *Tracker) suspend(k model.Key) (r schema.GroupVersionResource, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.objects[k]
	if o == nil {
		return r, false
	}
	r = o.seen.Resource
	t.suspended[r] = nil
	t.review(k, o)
	return r, true
}

// resourceOf returns the resource of an object; false if the object is gone.
func (t *Tracker) resourceOf(k model.Key) (r schema.GroupVersionResource, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.objects[k]
	if o == nil {
		return r, false
	}
	return o.seen.Resource, true
}

// holdBack reports whether an object from the queue waits for its resource. The caller holds mu.
func (t *Tracker) holdBack(k model.Key, o *object) bool {
	held, is := t.suspended[o.seen.Resource]
	if is {
		t.suspended[o.seen.Resource] = append(held, k)
	}
	return is
}

// resume queues the objects of a suspended resource.
func (t *Tracker) resume(r schema.GroupVersionResource) {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := t.suspended[r]
	delete(t.suspended, r)
	t.queue = append(t.queue, held...)
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// unqueue removes an object from the queue. The caller holds mu.
func (t *Tracker) unqueue(k model.Key) {
	is := func(q model.Key) bool { return q == k }
	t.queue = slices.DeleteFunc(t.queue, is)
	for r, held := range t.suspended {
		t.suspended[r] = slices.DeleteFunc(held, is)
	}
}
