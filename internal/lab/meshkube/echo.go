package meshkube

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// leases are objects that nobody else reads.
var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// Echo writes objects and hears of them from a watch: what any reader of an API server waits
// before it can do anything. It belongs to one goroutine.
type Echo struct {
	client  dynamic.ResourceInterface
	watch   watch.Interface
	objects map[string]*unstructured.Unstructured // by name, as heard last
	calls   int
}

// NewEcho makes objects in a namespace of the lab's, as many as are to be written at the same time.
func (c *Cluster) NewEcho(ctx context.Context, namespace string, objects int) (*Echo, error) {
	if err := c.makeNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	e := &Echo{client: c.watcher.Resource(leases).Namespace(namespace), objects: map[string]*unstructured.Unstructured{}}
	for i := range objects {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(leases.GroupVersion().String())
		u.SetKind("Lease")
		u.SetName(fmt.Sprintf("echo-%d-of-%d", i, objects))
		made, err := e.client.Create(ctx, u, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			made, err = e.client.Get(ctx, u.GetName(), metav1.GetOptions{})
		}
		if err != nil {
			return nil, err
		}
		e.objects[u.GetName()] = made
	}
	var err error
	e.watch, err = e.client.Watch(ctx, metav1.ListOptions{})
	return e, err
}

// Before calls the echo before apply; a nil one does nothing.
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

// Call writes all objects at the same time, and returns when the watch has told of each.
func (e *Echo) Call(ctx context.Context) error {
	e.calls++
	mark := strconv.Itoa(e.calls)
	writes, ctx := errgroup.WithContext(ctx)
	for _, u := range e.objects {
		writes.Go(func() error {
			next := u.DeepCopy()
			next.SetAnnotations(map[string]string{"moonsail.dev/call": mark})
			_, err := e.client.Update(ctx, next, metav1.UpdateOptions{})
			return err
		})
	}
	heard := e.hear(ctx, mark)
	return errors.Join(writes.Wait(), heard)
}

func (e *Echo) hear(ctx context.Context, mark string) error {
	for left := len(e.objects); left > 0; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-e.watch.ResultChan():
			u, is := event.Object.(*unstructured.Unstructured)
			switch {
			case !ok:
				return errors.New("the API server has ended the watch of Leases")
			case event.Type == watch.Error:
				return fmt.Errorf("watch of Leases: %w", apierrors.FromObject(event.Object))
			case is && e.objects[u.GetName()] != nil && u.GetAnnotations()["moonsail.dev/call"] == mark:
				e.objects[u.GetName()], left = u, left-1
			}
		}
	}
	return nil
}

// Stop ends the watch. The objects go with their namespace.
func (e *Echo) Stop() {
	if e != nil {
		e.watch.Stop()
	}
}
