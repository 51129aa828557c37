package meshkube

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/moonsail/moonsail/internal/lab/meshfiles"
)

// Echo makes the shadow of a change and waits for it in watches: the time that any reader of an API server needs before it
// can react to such a change. One goroutine uses it.
type Echo struct {
	cluster *Cluster
	shadow  meshfiles.Shadow
	file    string
	changed bool // the shadow is as after the change
	commit  func() error
	waited  map[heard]bool // the target of commit

	events  chan heard
	stop    context.CancelFunc
	ended   sync.WaitGroup // of the goroutines that read watches
	watches []watch.Interface
}

// heard is an event of a watch; err: the watch ended.
type heard struct {
	resource schema.GroupVersionResource
	name     string
	gone     bool
	err      error
}

// NewEcho writes the shadow into the API server, in its state before the change.
func (c *Cluster) NewEcho(ctx context.Context, shadow meshfiles.Shadow) (*Echo, error) {
	if err := c.makeNamespace(ctx, meshfiles.Aside); err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx)) // Stop ends them
	e := &Echo{cluster: c, shadow: shadow, file: "echo.yaml", changed: true, events: make(chan heard), stop: stop}
	err := e.watch(watching)
	if err == nil {
		err = e.stage(shadow.Rest)
	}
	if err == nil {
		err = e.Reset(ctx)
	}
	if err != nil {
		e.Stop()
		return nil, err
	}
	return e, nil
}

// watch watches all resources of the shadow.
func (e *Echo) watch(ctx context.Context) error {
	seen := map[schema.GroupVersionResource]bool{}
	for _, text := range []string{e.shadow.Rest, e.shadow.Changed} {
		list, _, err := documents(text)
		if err != nil {
			return err
		}
		for _, o := range list {
			if seen[o.resource] {
				continue
			}
			seen[o.resource] = true
			w, err := e.cluster.watcher.Resource(o.resource).Namespace(meshfiles.Aside).Watch(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			e.watches = append(e.watches, w)
			e.ended.Go(func() { e.read(ctx, o.resource, w) })
		}
	}
	return nil
}

// documents is parse for a text that may be empty.
func documents(text string) ([]*object, []*unstructured.Unstructured, error) {
	if text == "" {
		return nil, nil, nil
	}
	return parse(text)
}

// read passes on the events of a watch until ctx ends.
func (e *Echo) read(ctx context.Context, resource schema.GroupVersionResource, w watch.Interface) {
	for event := range w.ResultChan() {
		h := heard{resource: resource, gone: event.Type == watch.Deleted}
		if u, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != watch.Error {
			h.name = u.GetName()
		} else {
			h.err = fmt.Errorf("watch of %s: %w", resource.Resource, apierrors.FromObject(event.Object))
		}
		select {
		case e.events <- h:
		case <-ctx.Done():
			return
		}
	}
	select {
	case e.events <- heard{err: fmt.Errorf("watch of %s: ended by the API server", resource.Resource)}:
	case <-ctx.Done():
	}
}

// Before returns a function that calls the echo and then apply. A nil echo only calls apply.
func (e *Echo) Before(ctx context.Context, apply func() error) func() error {
	if e == nil {
		return apply
	}
	return func() error {
		if err := e.Call(ctx); err != nil {
			return err
		}
		return apply()
	}
}

// Call makes the change, with all objects at the same time as in the mesh, and returns after the watch events of all of them.
// Reset must be called before the next Call.
func (e *Echo) Call(ctx context.Context) error { return e.turn(ctx, true) }

// Reset undoes the change in the same way. With a nil echo it does nothing.
func (e *Echo) Reset(ctx context.Context) error {
	if e == nil {
		return nil
	}
	return e.turn(ctx, false)
}

// turn commits the staged state, and stages the other one, so that nothing is parsed during a call.
func (e *Echo) turn(ctx context.Context, changed bool) error {
	if e.changed == changed {
		return errors.New("call and reset an echo in turn")
	}
	e.changed = changed
	both, hearing := errgroup.WithContext(ctx)
	both.Go(e.commit)
	both.Go(func() error { return e.hear(hearing, e.waited) })
	if err := both.Wait(); err != nil {
		return err
	}
	if changed {
		return e.stage(e.shadow.Rest)
	}
	return e.stage(e.shadow.Changed)
}

// stage prepares to write the objects of a text.
func (e *Echo) stage(text string) error {
	next, parsed, err := documents(text)
	e.waited = e.cluster.differing(e.file, next)
	e.commit = func() error { return e.cluster.replace(e.file, next, parsed) }
	return err
}

// hear waits for the events of all these objects.
func (e *Echo) hear(ctx context.Context, waited map[heard]bool) error {
	for len(waited) > 0 {
		select {
		case h := <-e.events:
			if h.err != nil {
				return h.err
			}
			delete(waited, h)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// differing returns the events of the replacement of a file.
func (c *Cluster) differing(file string, next []*object) map[heard]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, out := c.files[file], map[heard]bool{}
	for _, o := range next {
		if was := find(old, o); was == nil || was.content != o.content {
			out[heard{resource: o.resource, name: o.name}] = true
		}
	}
	for _, o := range old {
		if find(next, o) == nil {
			out[heard{resource: o.resource, name: o.name, gone: true}] = true
		}
	}
	return out
}

// Stop ends the watches and removes the shadow.
func (e *Echo) Stop() {
	if e == nil {
		return
	}
	e.stop()
	for _, w := range e.watches {
		w.Stop()
	}
	e.ended.Wait()
	_ = e.cluster.replace(e.file, nil, nil) // if it cannot, Clear does
}
