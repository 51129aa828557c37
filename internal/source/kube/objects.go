package kube

import (
	"context"
	"encoding/json"
	"errors"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Objects reads and writes objects of any kind, for commands that install Moonsail.
type Objects struct {
	client  dynamic.Interface
	config  *rest.Config
	manager string // of fields that Apply writes
}

// NewObjects returns the objects of an API server. manager is the name with which Apply owns fields.
func NewObjects(c *Client, manager string) (*Objects, error) {
	client, err := dynamic.NewForConfigAndClient(c.config, c.http)
	if err != nil {
		return nil, err
	}
	return &Objects{client, c.config, manager}, nil
}

func (o *Objects) of(r schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return o.client.Resource(r)
	}
	return o.client.Resource(r).Namespace(namespace)
}

// Get reads an object. The namespace is empty for resources without one.
func (o *Objects) Get(ctx context.Context, r schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	return o.of(r, namespace).Get(ctx, name, metav1.GetOptions{})
}

// List lists objects by a label selector, of all namespaces if the namespace is empty. It reads all of them in one request.
func (o *Objects) List(ctx context.Context, r schema.GroupVersionResource, namespace, selector string) ([]unstructured.Unstructured, error) {
	list, err := o.of(r, namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Named returns the objects of a name, of all namespaces.
func (o *Objects) Named(ctx context.Context, r schema.GroupVersionResource, name string) ([]unstructured.Unstructured, error) {
	list, err := o.of(r, "").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Count counts the objects of a resource in all namespaces.
func (o *Objects) Count(ctx context.Context, r schema.GroupVersionResource) (int, error) {
	list, err := o.client.Resource(r).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	if more := list.GetRemainingItemCount(); more != nil {
		return len(list.Items) + int(*more), nil
	}
	if list.GetContinue() == "" {
		return len(list.Items), nil
	}
	all, err := o.List(ctx, r, "", "")
	return len(all), err
}

// Apply applies an object on the server and takes over fields of others. With dryRun nothing is stored.
func (o *Objects) Apply(ctx context.Context, r schema.GroupVersionResource, object *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	options := metav1.ApplyOptions{FieldManager: o.manager, Force: true}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return o.of(r, object.GetNamespace()).Apply(ctx, object.GetName(), object, options)
}

// Share applies fields of an object as another manager, beside those that own them. It is a conflict if they have other values.
func (o *Objects) Share(ctx context.Context, r schema.GroupVersionResource, object *unstructured.Unstructured, manager string) error {
	_, err := o.of(r, object.GetNamespace()).Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: manager})
	return err
}

// Update replaces an object. Its resource version must be the current one.
func (o *Objects) Update(ctx context.Context, r schema.GroupVersionResource, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return o.of(r, object.GetNamespace()).Update(ctx, object, metav1.UpdateOptions{FieldManager: o.manager})
}

// Delete deletes an object, and then what it owns.
func (o *Objects) Delete(ctx context.Context, r schema.GroupVersionResource, namespace, name string) error {
	policy := metav1.DeletePropagationBackground
	return o.of(r, namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy})
}

// Allowed reports whether this user may do something.
func (o *Objects) Allowed(ctx context.Context, verb string, r schema.GroupVersionResource, namespace string) (bool, error) {
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{
			"verb": verb, "group": r.Group, "resource": r.Resource, "namespace": namespace,
		}},
	}}
	resource := authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews")
	answer, err := o.client.Resource(resource).Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	allowed, _, err := unstructured.NestedBool(answer.Object, "status", "allowed")
	return allowed, err
}

// Version returns the API server's version.
func (o *Objects) Version(ctx context.Context) (string, error) {
	config := rest.CopyConfig(o.config)
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return "", err
	}
	text, err := client.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	return gitVersion(text)
}

// gitVersion returns the version in an answer of /version.
func gitVersion(text []byte) (string, error) {
	var info version.Info
	if err := json.Unmarshal(text, &info); err != nil {
		return "", err
	}
	if info.GitVersion == "" {
		return "", errors.New("GET /version: the answer has no gitVersion")
	}
	return info.GitVersion, nil
}
