package meshkube

import (
	"context"
	"fmt"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Hearing is a watch of a namespace's EndpointSlices, the least work of any reader of an API server that follows them. One
// goroutine uses it.
type Hearing struct{ watch watch.Interface }

// HearSlices watches writes to a namespace's EndpointSlices, from its return until Stop or the end of ctx.
func (c *Cluster) HearSlices(ctx context.Context, namespace string) (*Hearing, error) {
	in := c.slices.EndpointSlices(namespace)
	now, err := in.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	w, err := in.Watch(ctx, metav1.ListOptions{ResourceVersion: now.ResourceVersion})
	if err != nil {
		return nil, err
	}
	return &Hearing{w}, nil
}

// Next waits for the next write to a slice and returns its service. A watch reports every write; writes to one slice are in
// order.
func (h *Hearing) Next(ctx context.Context) (service string, err error) {
	kind, object, err := nextSlice(ctx, h.watch)
	if err == nil && kind != watch.Modified {
		err = fmt.Errorf("EndpointSlice %s: want event MODIFIED, got %s", object.Name, kind)
	}
	if err != nil {
		return "", err
	}
	return object.Labels[discoveryv1.LabelServiceName], nil
}

// Stop ends the watch.
func (h *Hearing) Stop() { h.watch.Stop() }
