package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DryRun applies objects on the server without storing them: the answers have its defaults, the changes of webhooks, and the
// fields of other managers.
type DryRun struct {
	client    *Client
	objects   *Objects
	resources map[schema.GroupVersion][]metav1.APIResource
}

// NewDryRun returns a DryRun that applies as a field manager.
func (c *Client) NewDryRun(manager string) (*DryRun, error) {
	objects, err := NewObjects(c, manager)
	if err != nil {
		return nil, err
	}
	return &DryRun{c, objects, map[schema.GroupVersion][]metav1.APIResource{}}, nil
}

// Apply returns what an object would be. Objects without a namespace are of the given one, if their kind has namespaces.
func (d *DryRun) Apply(ctx context.Context, object *unstructured.Unstructured, namespace string) (*unstructured.Unstructured, error) {
	gvk := object.GroupVersionKind()
	r, err := d.resource(ctx, gvk)
	if err != nil {
		return nil, err
	}
	if r.Namespaced && object.GetNamespace() == "" {
		object.SetNamespace(namespace)
	}
	out, err := d.objects.Apply(ctx, gvk.GroupVersion().WithResource(r.Name), object, true)
	if err != nil {
		return nil, err
	}
	out.SetManagedFields(nil)
	return out, nil
}

// resource returns the resource of a kind.
func (d *DryRun) resource(ctx context.Context, k schema.GroupVersionKind) (metav1.APIResource, error) {
	gv := k.GroupVersion()
	list, known := d.resources[gv]
	if !known {
		var err error
		if list, err = d.client.resources(ctx, gv); err != nil {
			return metav1.APIResource{}, err
		}
		d.resources[gv] = list
	}
	for _, r := range list {
		if r.Kind == k.Kind && !strings.Contains(r.Name, "/") {
			return r, nil
		}
	}
	return metav1.APIResource{}, fmt.Errorf("the API server has no kind %s in %s", k.Kind, gv)
}

// resources returns the resources of a version; none if the API server does not have it.
func (c *Client) resources(ctx context.Context, gv schema.GroupVersion) ([]metav1.APIResource, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	resp, err := c.get(ctx, path, http.Header{"Accept": {"application/json"}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		_, _ = io.Copy(io.Discard, resp.Body)
		return nil, nil
	default:
		return nil, fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	var list metav1.APIResourceList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	return list.APIResources, nil
}
