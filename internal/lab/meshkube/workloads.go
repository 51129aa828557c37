package meshkube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

var (
	deployments    = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	endpointSlices = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
)

// Patch merges JSON into a Deployment, which its controller may be changing at the same time.
func (c *Cluster) Patch(ctx context.Context, namespace, deployment, json string) error {
	_, err := c.client.Resource(deployments).Namespace(namespace).
		Patch(ctx, deployment, types.MergePatchType, []byte(json), metav1.PatchOptions{})
	return err
}

// RolledOut tells whether a Deployment's pods are all of its newest template, available,
// and as many as it says.
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

// number is a field; 0 where there is none.
func number(u *unstructured.Unstructured, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, path...)
	return n
}

// Slice is what an EndpointSlice says.
type Slice struct {
	Name, Service string
	Ready         []netip.Addr // in the slice's order; none where it was deleted
}

// Slices lists the EndpointSlices of a namespace, and says as of which version.
func (c *Cluster) Slices(ctx context.Context, namespace string) (list []Slice, version string, err error) {
	all, err := c.client.Resource(endpointSlices).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	for i := range all.Items {
		list = append(list, sliceOf(&all.Items[i]))
	}
	return list, all.GetResourceVersion(), nil
}

// WatchSlices calls seen with the EndpointSlices of a namespace, and again with each that
// changes, until ctx ends: it returns an error where the API server ends it.
func (c *Cluster) WatchSlices(ctx context.Context, namespace string, seen func(Slice)) error {
	list, version, err := c.Slices(ctx, namespace)
	if err != nil {
		return err
	}
	for _, s := range list {
		seen(s)
	}
	w, err := c.watcher.Resource(endpointSlices).Namespace(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return err
	}
	defer w.Stop()
	defer context.AfterFunc(ctx, w.Stop)()
	for e := range w.ResultChan() {
		u, ok := e.Object.(*unstructured.Unstructured)
		switch {
		case e.Type == watch.Error:
			return fmt.Errorf("EndpointSlices: %w", apierrors.FromObject(e.Object))
		case !ok:
		case e.Type == watch.Deleted:
			s := sliceOf(u)
			s.Ready = nil
			seen(s)
		default:
			seen(sliceOf(u))
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.New("the API server has ended the watch of EndpointSlices")
}

// sliceOf reads conditions as discovery/v1 defines them: ready unless it says otherwise.
func sliceOf(u *unstructured.Unstructured) Slice {
	s := Slice{Name: u.GetName(), Service: u.GetLabels()["kubernetes.io/service-name"]}
	endpoints, _ := u.Object["endpoints"].([]any) // a list of structures, not copied
	for _, e := range endpoints {
		object, _ := e.(map[string]any)
		if ready, ok, _ := unstructured.NestedBool(object, "conditions", "ready"); ok && !ready {
			continue
		}
		addresses, _, _ := unstructured.NestedStringSlice(object, "addresses")
		for _, text := range addresses {
			if a, err := netip.ParseAddr(text); err == nil {
				s.Ready = append(s.Ready, a)
			}
		}
	}
	return s
}
