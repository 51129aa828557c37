package install

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// scaleManager owns the number of replicas until an autoscaler changes it.
const scaleManager = "moonsail-scale"

var replicasPath = []string{"spec", "replicas"}

// leavesReplicas reports whether an object is a Deployment whose number of replicas an autoscaler decides.
func leavesReplicas(o *unstructured.Unstructured) bool {
	_, given, _ := unstructured.NestedInt64(o.Object, replicasPath...)
	return o.GetKind() == deployments.name && !given
}

// keepReplicas prepares a Deployment for an apply without a number of replicas. The API server removes a field that its only
// owner no longer applies, and the default is 1. So another manager owns the number first.
func keepReplicas(ctx context.Context, c objects, o *unstructured.Unstructured) error {
	live, err := c.Get(ctx, deployments.GroupVersionResource, o.GetNamespace(), o.GetName())
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	n, ok, _ := unstructured.NestedInt64(live.Object, replicasPath...)
	if !ok {
		return nil
	}
	own := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": n}}}
	own.SetGroupVersionKind(deployments.GroupVersion().WithKind(deployments.name))
	own.SetName(o.GetName())
	own.SetNamespace(o.GetNamespace())
	err = c.Share(ctx, deployments.GroupVersionResource, own, scaleManager)
	if apierrors.IsConflict(err) { // an autoscaler or user has changed it just now, and owns it
		return nil
	}
	return err
}

// withReplicas copies the number of replicas, which an apply keeps (keepReplicas), from a Deployment to what a dry run answers.
func withReplicas(live, after *unstructured.Unstructured) error {
	n, ok, err := unstructured.NestedInt64(live.Object, replicasPath...)
	if err != nil || !ok {
		return err
	}
	return unstructured.SetNestedField(after.Object, n, replicasPath...)
}
