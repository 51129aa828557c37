package kube

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

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
	have   map[types.NamespacedName]P
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
	Watch(ctx, plural, lw, example, Handler[P]{Upsert: c.upsert, Remove: c.remove, Listed: c.setListed})
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
	return c.have[types.NamespacedName{Namespace: namespace, Name: name}]
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

func (c *Copy[T, P]) upsert(p P) {
	c.mu.Lock()
	if c.have == nil {
		c.have = map[types.NamespacedName]P{}
	}
	old, known := c.have[nameOf(p)]
	c.have[nameOf(p)] = p
	c.mu.Unlock()
	if known && old.GetUID() != p.GetUID() && c.Gone != nil { // a list had another object of the name
		c.Gone(old)
	}
	if c.Changed != nil {
		c.Changed(p)
	}
}

func (c *Copy[T, P]) remove(n types.NamespacedName) {
	c.mu.Lock()
	p, known := c.have[n]
	delete(c.have, n)
	c.mu.Unlock()
	if known && c.Gone != nil {
		c.Gone(p)
	}
}

func (c *Copy[T, P]) setListed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed = true
}
