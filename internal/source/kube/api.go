package kube

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// API reads and writes single objects of one type, for example API[corev1.Secret].
//
// It takes the place of client-go's typed clients. Those register every API group of Kubernetes
// and import its apply configurations: about 300 packages, a quarter of the build.
type API[T any, P object[T]] struct {
	client rest.Interface
	plural string
}

// object is a pointer to a type of Kubernetes.
type object[T any] interface {
	*T
	runtime.Object
	metav1.Object
}

// NewAPI returns the API of a resource. Register adds the types of the resource's group to a scheme.
func NewAPI[T any, P object[T]](c *Client, resource schema.GroupVersionResource, register func(*runtime.Scheme) error) (*API[T, P], error) {
	scheme := runtime.NewScheme()
	if err := register(scheme); err != nil {
		return nil, err
	}
	client, err := c.restOf(resource.GroupVersion(), scheme)
	if err != nil {
		return nil, err
	}
	return &API[T, P]{client, resource.Resource}, nil
}

// Get reads an object. The namespace is empty for resources without one.
func (a *API[T, P]) Get(ctx context.Context, namespace, name string) (P, error) {
	return do[T, P](ctx, a.client.Get().NamespaceIfScoped(namespace, namespace != "").Resource(a.plural).Name(name))
}

// Create creates an object in its namespace.
func (a *API[T, P]) Create(ctx context.Context, o P) (P, error) {
	return do[T, P](ctx, a.client.Post().NamespaceIfScoped(o.GetNamespace(), o.GetNamespace() != "").Resource(a.plural).Param("fieldManager", fieldManager).Body(o))
}

// Update replaces an object. If its resource version is set and no longer the current one, the result is a conflict.
func (a *API[T, P]) Update(ctx context.Context, o P) (P, error) {
	return do[T, P](ctx, a.client.Put().NamespaceIfScoped(o.GetNamespace(), o.GetNamespace() != "").Resource(a.plural).Name(o.GetName()).
		Param("fieldManager", fieldManager).Body(o))
}

// Merge applies a JSON merge patch to an object.
func (a *API[T, P]) Merge(ctx context.Context, namespace, name string, patch []byte) (P, error) {
	return do[T, P](ctx, a.client.Patch(types.MergePatchType).NamespaceIfScoped(namespace, namespace != "").Resource(a.plural).Name(name).
		Param("fieldManager", fieldManager).Body(patch))
}

// do sends a request and decodes the object of the answer.
func do[T any, P object[T]](ctx context.Context, r *rest.Request) (P, error) {
	var o P = new(T)
	if err := r.Do(ctx).Into(o); err != nil {
		return nil, err
	}
	return o, nil
}
