package gatewaydeploy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/moonsail/moonsail/internal/model"
)

// Field managers: ours, and that of istiod's gateway deployment controller.
const (
	fieldManager       = "moonsail-gateways"
	fieldManagerIstiod = "istio.io/gateway-controller" // applies in this name only remove fields that istiod left
)

// ownership is what the controller may do with an existing object.
type ownership int

const (
	owned    ownership = iota
	released           // the user took over an object that was made for the Gateway: it stays as it is
	conflict           // it belongs to others
)

// ownershipOf decides about an existing object that a Gateway should have. It returns what to do about a conflict.
func (c *Controller) ownershipOf(p *plan, want *object, have *unstructured.Unstructured) (is ownership, advice string) {
	mine := slices.ContainsFunc(have.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == p.UID })
	_, managed := have.GetLabels()[labelManaged]
	switch {
	case mine && managed && applied(have, fieldManagerIstiod) && !c.takesOver(p.gateway):
		return conflict, fmt.Sprintf("istiod deploys it: to replace istiod, label the Gateway %s: %s", model.LabelRevision, c.revision())
	case mine && managed:
		return owned, ""
	case mine, p.foreignAccount && want.kind.overlay == "serviceAccount":
		return released, ""
	case managed:
		return conflict, fmt.Sprintf("it belongs to another Gateway: set the annotation %s to an unused name", annotationName)
	}
	return conflict, fmt.Sprintf("it was not created for this Gateway: rename or delete it, or set the annotation %s to an unused name", annotationName)
}

// takesOver reports whether a Gateway's objects are taken over from istiod: its label names the revision of this control
// plane. Otherwise istiod could still run, and both would overwrite each other's objects forever.
func (c *Controller) takesOver(g *gateway) bool { return g.Labels[model.LabelRevision] == c.revision() }

// applied reports whether a field manager has applied the object.
func applied(o *unstructured.Unstructured, manager string) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply
	})
}

// writtenByUs reports whether this controller has applied the object, or has created it: a control plane may lose the lead,
// or end, before it applies what it has created.
func writtenByUs(o *unstructured.Unstructured) bool {
	return applied(o, fieldManager) || creationOf(o.GetManagedFields()) >= 0
}

// creationOf returns the index of the entry that a creation by this controller leaves until ownByApply; -1: there is none.
func creationOf(entries []metav1.ManagedFieldsEntry) int {
	return slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == fieldManager && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
	})
}

// apply writes an object. If it belongs to others, it returns what to do about it.
func (t *term) apply(ctx context.Context, p *plan, want *object) (trouble string, err error) {
	api := t.objects(want.kind, p.Namespace)
	have, err := api.Get(ctx, want.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		have = nil
	case err != nil:
		return "", err
	}
	if have == nil {
		// It fails if others create the object in this moment; a forced apply would overwrite theirs.
		if have, err = api.Create(ctx, want.DeepCopy(), metav1.CreateOptions{FieldManager: fieldManager}); err != nil {
			return "", err
		}
	} else {
		switch is, advice := t.ownershipOf(p, want, have); is {
		case released:
			return "", nil
		case conflict:
			return fmt.Sprintf("%s: %s", want.title(), advice), nil
		}
	}
	if have, err = ownByApply(ctx, api, have); err != nil {
		return "", err
	}
	if want.keepsReplicas && appliesReplicas(have) {
		if have, err = shareReplicas(ctx, api, have); err != nil {
			return "", err
		}
	}
	if err = want.keepSelector(have); err != nil {
		return "", err
	}
	// The write fails if the object has changed since, perhaps its owner or its label.
	want.SetResourceVersion(have.GetResourceVersion())
	text, err := json.Marshal(want.Object)
	if err != nil {
		return "", err
	}
	force := true
	now, err := api.Patch(ctx, want.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: fieldManager, Force: &force})
	if err != nil {
		return "", err
	}
	if applied(now, fieldManagerIstiod) {
		if now, err = t.dropFieldsOfIstiod(ctx, p, want); err != nil {
			return "", err
		}
	}
	t.inventory.wrote(childKey{want.resource, p.Namespace, want.GetName()}, p.UID, now)
	return "", nil
}

// ownByApply makes the fields that a creation set those of an apply. Otherwise later applies could not remove them. It returns the
// object as it is then.
func ownByApply(ctx context.Context, api dynamic.ResourceInterface, have *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	entries := have.GetManagedFields()
	i := creationOf(entries)
	if i < 0 {
		return have, nil
	}
	if applied(have, fieldManager) {
		entries = slices.Delete(entries, i, i+1)
	} else {
		entries[i].Operation = metav1.ManagedFieldsOperationApply
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": entries},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": have.GetResourceVersion()}, // a conflict if it has changed
	})
	if err != nil {
		return nil, err
	}
	return api.Patch(ctx, have.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
}

// dropFieldsOfIstiod removes the fields that only istiod set: it applies an empty object as istiod's field manager.
func (t *term) dropFieldsOfIstiod(ctx context.Context, p *plan, o *object) (*unstructured.Unstructured, error) {
	empty := map[string]any{
		"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "metadata": map[string]any{"name": o.GetName(), "namespace": p.Namespace},
	}
	text, err := json.Marshal(empty)
	if err != nil {
		return nil, err
	}
	force := true
	return t.objects(o.kind, p.Namespace).Patch(ctx, o.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: fieldManagerIstiod, Force: &force})
}

// prune deletes the objects of a Gateway that it should not have any more.
func (t *term) prune(ctx context.Context, uid types.UID, want []object) error {
	for k, c := range t.inventory.of(uid) {
		if k.in(want) || !c.ours {
			continue
		}
		background := metav1.DeletePropagationBackground
		options := metav1.DeleteOptions{
			PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &c.uid, ResourceVersion: &c.version},
		}
		err := t.dynamic.Resource(k.resource).Namespace(k.namespace).Delete(ctx, k.name, options)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s %s: not deleted: %w", k.resource.Resource, k.name, err)
		}
		t.Log.Info("deleted an object that its Gateway does not need any more", "resource", k.resource.Resource, "namespace", k.namespace, "name", k.name)
	}
	return nil
}
