package gatewaydeploy

import (
	"context"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// labelOldName is the label that Istio's Deployments of Gateways selected until 1.20. A selector cannot change, so that later
// istiods have kept it.
const labelOldName = "istio.io/gateway-name"

// managerScale owns the number of routers until an autoscaler changes it.
const managerScale = "moonsail-gateways-scale"

// Fields of Deployments.
var (
	pathReplicas  = []string{"spec", "replicas"}
	pathSelector  = []string{"spec", "selector"}
	pathPodLabels = []string{"spec", "template", "metadata", "labels"}
)

// keepSelector takes the selector of a Deployment that an old Istio created, and the label that its Pods need.
func (o *object) keepSelector(have *unstructured.Unstructured) error {
	selected, _, _ := unstructured.NestedStringMap(have.Object, append(pathSelector, "matchLabels")...)
	if o.kind.kind != kindDeployment || selected[labelOldName] == "" {
		return nil
	}
	selector, _, err := unstructured.NestedMap(have.Object, pathSelector...)
	if err != nil {
		return err
	}
	if err = unstructured.SetNestedMap(o.Object, selector, pathSelector...); err != nil {
		return err
	}
	return unstructured.SetNestedField(o.Object, selected[labelOldName], append(pathPodLabels, labelOldName)...)
}

// leaveToAutoscaler marks Deployments without a number of routers if there is an autoscaler.
func leaveToAutoscaler(objects []object) {
	if !slices.ContainsFunc(objects, func(o object) bool { return o.kind.kind == kindAutoscaler }) {
		return
	}
	for i := range objects {
		_, given, _ := unstructured.NestedFieldNoCopy(objects[i].Object, pathReplicas...)
		objects[i].keepsReplicas = objects[i].kind.kind == kindDeployment && !given
	}
}

// appliesReplicas reports whether an apply of this controller or of istiod has set the number of routers.
func appliesReplicas(have *unstructured.Unstructured) bool {
	return slices.ContainsFunc(have.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		var fields struct {
			Spec map[string]any `json:"f:spec"`
		}
		if e.Manager != fieldManager && e.Manager != fieldManagerIstiod || e.FieldsV1 == nil || json.Unmarshal(e.FieldsV1.GetRawBytes(), &fields) != nil {
			return false
		}
		_, sets := fields.Spec["f:replicas"]
		return sets
	})
}

// shareReplicas makes another manager an owner of the number of routers. The API server removes a field that its only owner no
// longer applies, and the default is 1. It returns the Deployment as it is then.
func shareReplicas(ctx context.Context, api dynamic.ResourceInterface, have *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	n, ok, err := unstructured.NestedInt64(have.Object, pathReplicas...)
	if err != nil || !ok {
		return have, err
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": have.GetAPIVersion(), "kind": have.GetKind(), "spec": map[string]any{"replicas": n},
		"metadata": map[string]any{"name": have.GetName(), "namespace": have.GetNamespace(), "resourceVersion": have.GetResourceVersion()},
	})
	if err != nil {
		return nil, err
	}
	return api.Patch(ctx, have.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: managerScale})
}
