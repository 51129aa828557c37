package kube

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/cache"

	"github.com/moonsail/moonsail/internal/config"
)

// Copy is a copy of some Pods or Nodes of an API server, which Follow keeps up to date.
type Copy[T any, P object[T]] struct {
	// Changed is called with each object that is new or has changed, and Gone with each one that was removed; nil means no callback.
	// Follow calls them in the order of events, outside of the lock: Get may return a newer state already, and they may call it.
	// They must be fast. Objects must not be changed.
	Changed func(P)
	Gone    func(P)

	mu     sync.Mutex // guards the fields below
	have   map[string]P
	listed bool
}

// Follow lists and watches until ctx ends. It retries while the API server is unavailable. record is called with the
// result of each request.
func (c *Copy[T, P]) Follow(ctx context.Context, client *Client, plural, namespace, field string, record func(error)) error {
	var example P = new(T)
	lw, err := client.listWatch(&resource{
		Resource: config.Resource{Kind: plural}, version: "v1", plural: plural, example: example, namespace: namespace, field: field,
	}, record)
	if err != nil {
		return err
	}
	quiet := logr.Discard()
	options := cache.ReflectorOptions{Name: plural, TypeDescription: plural, Logger: &quiet, Backoff: backoff()}
	cache.NewReflectorWithOptions(lw, example, &copySink[T, P]{c}, options).RunWithContext(logr.NewContext(ctx, quiet))
	return nil
}

// Listed reports whether the copy is complete.
func (c *Copy[T, P]) Listed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed
}

// Get returns an object of the copy; nil: it has none. The namespace is empty for Nodes.
func (c *Copy[T, P]) Get(namespace, name string) P {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.have[namespace+"/"+name]
}

// All returns all objects, in no order.
func (c *Copy[T, P]) All() []P {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]P, 0, len(c.have))
	for _, o := range c.have {
		out = append(out, o)
	}
	return out
}

// copySink is the store of a copy's Reflector.
type copySink[T any, P object[T]] struct{ of *Copy[T, P] }

// Add implements cache.ReflectorStore.
func (s *copySink[T, P]) Add(o any) error { return s.Update(o) }

// Update implements cache.ReflectorStore.
func (s *copySink[T, P]) Update(o any) error {
	p, ok := o.(P)
	if !ok {
		return nil
	}
	s.of.mu.Lock()
	if s.of.have == nil {
		s.of.have = map[string]P{}
	}
	s.of.have[p.GetNamespace()+"/"+p.GetName()] = p
	s.of.mu.Unlock()
	call(s.of.Changed, p)
	return nil
}

func call[P any](f func(P), p P) {
	if f != nil {
		f(p)
	}
}

// Delete implements cache.ReflectorStore.
func (s *copySink[T, P]) Delete(o any) error {
	p, ok := o.(P)
	if !ok {
		return nil
	}
	s.of.mu.Lock()
	delete(s.of.have, p.GetNamespace()+"/"+p.GetName())
	s.of.mu.Unlock()
	call(s.of.Gone, p)
	return nil
}

// Replace implements cache.ReflectorStore.
func (s *copySink[T, P]) Replace(list []any, _ string) error {
	have := map[string]P{}
	for _, o := range list {
		if p, ok := o.(P); ok {
			have[p.GetNamespace()+"/"+p.GetName()] = p
		}
	}
	s.of.mu.Lock()
	old := s.of.have
	s.of.have, s.of.listed = have, true
	s.of.mu.Unlock()
	for key, p := range old {
		if now, ok := have[key]; !ok || now.GetUID() != p.GetUID() {
			call(s.of.Gone, p)
		}
	}
	for _, p := range have {
		call(s.of.Changed, p)
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *copySink[T, P]) Resync() error { return nil }
