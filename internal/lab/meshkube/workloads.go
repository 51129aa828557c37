package meshkube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// Patch merges JSON into a Deployment, which its controller may be changing at the same time.
func (c *Cluster) Patch(ctx context.Context, namespace, deployment, json string) error {
	_, err := c.client.Resource(deployments).Namespace(namespace).
		Patch(ctx, deployment, types.MergePatchType, []byte(json), metav1.PatchOptions{})
	return err
}

// RolledOut reports whether all pods of a Deployment have its newest template, are available, and are as many as it
// requires.
func (c *Cluster) RolledOut(ctx context.Context, namespace, deployment string) (bool, error) {
	u, err := c.client.Resource(deployments).Namespace(namespace).Get(ctx, deployment, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	want := number(u, "spec", "replicas")
	done := number(u, "status", "observedGeneration") == u.GetGeneration()
	for _, count := range []string{"replicas", "updatedReplicas", "availableReplicas"} {
		done = done && number(u, "status", count) == want
	}
	return done, nil
}

// number returns a field; 0 if there is none.
func number(u *unstructured.Unstructured, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, path...)
	return n
}

// Slice is the content of an EndpointSlice.
type Slice struct {
	Name, Service string
	Ready         []netip.Addr // in the slice's order; none if it was deleted
}

// Slices lists the EndpointSlices of a namespace, and returns their version.
func (c *Cluster) Slices(ctx context.Context, namespace string) (list []Slice, version string, err error) {
	all, err := c.slices.EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	for i := range all.Items {
		list = append(list, sliceOf(&all.Items[i]))
	}
	return list, all.ResourceVersion, nil
}

// WatchSlices calls seen with the EndpointSlices of a namespace, and again with each changed one, until ctx ends. It
// returns an error if the API server ends the watch.
func (c *Cluster) WatchSlices(ctx context.Context, namespace string, seen func(Slice)) error {
	list, version, err := c.Slices(ctx, namespace)
	if err != nil {
		return err
	}
	for _, s := range list {
		seen(s)
	}
	w, err := c.slices.EndpointSlices(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		kind, object, err := nextSlice(ctx, w)
		if err != nil {
			return err
		}
		s := sliceOf(object)
		if kind == watch.Deleted {
			s.Ready = nil
		}
		seen(s)
	}
}

// nextSlice waits for the next event of a watch of EndpointSlices. It returns an error if the watch or ctx ends.
func nextSlice(ctx context.Context, w watch.Interface) (watch.EventType, *discoveryv1.EndpointSlice, error) {
	for {
		select {
		case e, open := <-w.ResultChan():
			object, ok := e.Object.(*discoveryv1.EndpointSlice)
			switch {
			case !open:
				return "", nil, errors.New("watch of EndpointSlices: ended by the API server")
			case e.Type == watch.Error:
				return "", nil, fmt.Errorf("EndpointSlices: %w", apierrors.FromObject(e.Object))
			case ok:
				return e.Type, object, nil
			}
		case <-ctx.Done():
			return "", nil, ctx.Err()
		}
	}
}

// sliceOf reads conditions as discovery/v1 defines them: ready unless stated otherwise.
func sliceOf(object *discoveryv1.EndpointSlice) Slice {
	s := Slice{Name: object.Name, Service: object.Labels[discoveryv1.LabelServiceName]}
	for i := range object.Endpoints {
		e := &object.Endpoints[i]
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		for _, text := range e.Addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				s.Ready = append(s.Ready, a)
			}
		}
	}
	return s
}
