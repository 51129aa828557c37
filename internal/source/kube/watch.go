package kube

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// Handler receives the objects of a watch, one call after the other. It must be fast. Objects must not be changed.
type Handler[P metav1.Object] struct {
	// Upsert is called with each object that is new or may have changed.
	Upsert func(P)
	// Remove is called with the name of each object that is gone. Another object may take a name without it; nil means no callback.
	Remove func(types.NamespacedName)
	// Listed is called after the calls for a complete list; nil means no callback.
	Listed func()
}

// Watch lists and watches objects of the type of example until ctx ends. It retries while the API server is unavailable.
func Watch[P interface {
	metav1.Object
	runtime.Object
}](ctx context.Context, name string, lw cache.ListerWatcher, example P, h Handler[P]) {
	reflectInto(ctx, name, lw, example, &watched[P]{Handler: h, known: map[types.NamespacedName]bool{}})
}

// reflectInto keeps a store up to date until ctx ends. The Reflector's log lines are dropped: who lists and watches records
// each result.
func reflectInto(ctx context.Context, name string, lw cache.ListerWatcher, example runtime.Object, into cache.ReflectorStore) {
	quiet := logr.Discard()
	options := cache.ReflectorOptions{Name: name, TypeDescription: name, Logger: &quiet, Backoff: backoff()}
	cache.NewReflectorWithOptions(lw, example, into, options).RunWithContext(logr.NewContext(ctx, quiet))
}

// backoff is the wait between attempts to reach an API server. It is also the delay of changes after an outage, during
// which proxies keep their configuration.
func backoff() *wait.Backoff {
	return &wait.Backoff{Duration: 100 * time.Millisecond, Cap: 3 * time.Second, Steps: 10, Factor: 2, Jitter: 0.5}
}

// watched is the cache.ReflectorStore of a Handler. Only its Reflector calls it.
type watched[P metav1.Object] struct {
	Handler[P]
	known map[types.NamespacedName]bool
}

// Add implements cache.ReflectorStore.
func (w *watched[P]) Add(o any) error {
	p, ok := o.(P)
	if !ok {
		return fmt.Errorf("unexpected object of type %T", o)
	}
	w.known[nameOf(p)] = true
	w.Upsert(p)
	return nil
}

// Update implements cache.ReflectorStore.
func (w *watched[P]) Update(o any) error { return w.Add(o) }

// Delete implements cache.ReflectorStore.
func (w *watched[P]) Delete(o any) error {
	m, err := meta.Accessor(o)
	if err != nil {
		return err
	}
	w.remove(nameOf(m))
	return nil
}

func (w *watched[P]) remove(n types.NamespacedName) {
	delete(w.known, n)
	if w.Remove != nil {
		w.Remove(n)
	}
}

// Replace implements cache.ReflectorStore.
func (w *watched[P]) Replace(list []any, _ string) error {
	present := make(map[types.NamespacedName]bool, len(list))
	for _, o := range list {
		m, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		present[nameOf(m)] = true
	}
	for n := range w.known {
		if !present[n] {
			w.remove(n)
		}
	}
	for _, o := range list {
		if err := w.Add(o); err != nil {
			return err
		}
	}
	if w.Listed != nil {
		w.Listed()
	}
	return nil
}

// Resync implements cache.ReflectorStore; there is nothing to do.
func (w *watched[P]) Resync() error { return nil }
