package kube

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
)

// resource is a kind in one API server.
type resource struct {
	config.Resource
	version string
	plural  string         // its name in URLs
	example runtime.Object // the type of decoded objects
	// Restrictions of the list; empty: none.
	namespace, field string
	metric           string // the name in Istio's metrics of registry events; empty: the kind
}

// title distinguishes kinds: two groups have Gateways, and one of them is read.
func (r *resource) title() string {
	if r.Read {
		return string(r.Model)
	}
	return r.Kind + "." + r.Group
}

func (r *resource) gv() schema.GroupVersion {
	return schema.GroupVersion{Group: r.Group, Version: r.version}
}

// builtin returns Kubernetes' own kinds, which every API server has. The mesh's configuration is a ConfigMap in
// rootNamespace.
func builtin(rootNamespace, meshConfig string) []*resource {
	rows := map[model.Kind]resource{
		model.KindNamespace:     {plural: "namespaces", example: &corev1.Namespace{}, metric: "Namespaces"},
		model.KindService:       {plural: "services", example: &corev1.Service{}, metric: "Services"},
		model.KindPod:           {plural: "pods", example: &corev1.Pod{}, metric: "Pods"},
		model.KindNode:          {plural: "nodes", example: &corev1.Node{}, metric: "Nodes"},
		model.KindEndpointSlice: {plural: "endpointslices", example: &discoveryv1.EndpointSlice{}, metric: "EndpointSlice"},
		model.KindMeshConfig: {
			plural: "configmaps", example: &corev1.ConfigMap{}, namespace: rootNamespace,
			field: "metadata.name=" + meshConfig,
		},
	}
	var out []*resource
	for _, k := range config.Resources() {
		if r, ok := rows[model.Kind(k.Kind)]; ok && !k.Custom {
			r.Resource, r.version = k, k.Versions[0]
			out = append(out, &r)
		}
	}
	return out
}

// custom returns a kind of a CustomResourceDefinition.
func custom(k config.Resource, version, plural string) *resource {
	r := &resource{Resource: k, version: version, plural: plural, example: &rawObject{}}
	if !k.Read {
		r.example = &metav1.PartialObjectMetadata{}
	}
	return r
}

// Content types. Custom resources have no protobuf. For some kinds only the metadata is requested.
const (
	typeProtobuf = "application/vnd.kubernetes.protobuf,application/json"
	typeJSON     = "application/json"
	typeMetadata = "application/json;as=PartialObjectMetadata%s;g=meta.k8s.io;v=v1"
)

// accept returns the content types of lists, or of single events.
func (r *resource) accept(list bool) string {
	switch r.example.(type) {
	case *rawObject:
		return typeJSON
	case *metav1.PartialObjectMetadata:
		if list {
			return fmt.Sprintf(typeMetadata, "List")
		}
		return fmt.Sprintf(typeMetadata, "")
	}
	return typeProtobuf
}

// register adds the resource's types to a scheme.
func (r *resource) register(s *runtime.Scheme) error {
	metav1.AddToGroupVersion(s, r.gv())
	switch r.example.(type) {
	case *rawObject:
		s.AddKnownTypeWithName(r.gv().WithKind(r.Kind), &rawObject{})
		s.AddKnownTypeWithName(r.gv().WithKind(r.Kind+"List"), &rawList{})
		return nil
	case *metav1.PartialObjectMetadata:
		return metav1.AddMetaToScheme(s)
	case *discoveryv1.EndpointSlice:
		return discoveryv1.AddToScheme(s)
	case *coordinationv1.Lease:
		return coordinationv1.AddToScheme(s)
	}
	return corev1.AddToScheme(s)
}

// rest returns a REST client for the resource's group and version.
func (c *Client) rest(r *resource) (*rest.RESTClient, error) {
	return c.restOf(r.gv(), r.register)
}

// restOf returns a REST client for a group and version. Register adds its types to a scheme.
func (c *Client) restOf(gv schema.GroupVersion, register func(*runtime.Scheme) error) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := register(scheme); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(c.config)
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.AcceptContentTypes, config.ContentType = typeProtobuf, typeJSON
	return rest.RESTClientForConfigAndClient(config, c.http)
}

// listWatch lists and watches a resource, and calls record with the result of each request.
func (c *Client) listWatch(r *resource, record func(error)) (*cache.ListWatch, error) {
	client, err := c.rest(r)
	if err != nil {
		return nil, err
	}
	request := func(list bool, o metav1.ListOptions) *rest.Request {
		o.FieldSelector = r.field
		return client.Get().Namespace(r.namespace).Resource(r.plural).
			VersionedParams(&o, metav1.ParameterCodec).SetHeader("Accept", r.accept(list))
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := request(true, o).Do(ctx).Get()
			record(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := request(false, o).Watch(ctx)
			record(err)
			return w, err
		},
	}, nil
}
