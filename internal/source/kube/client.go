package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is the access to an API server.
type Cluster struct {
	Kubeconfig string   // path; empty: Files
	Files      []string // paths of a merged configuration, as in $KUBECONFIG; empty: the access of a Pod in the cluster
	Context    string   // in the file; empty: the current one
	UserAgent  string
}

// ErrNotInCluster means that there is no file, and that this process is not in a Pod.
var ErrNotInCluster = rest.ErrNotInCluster

// Limits of requests. Lists and watches are few; the API server's priority and fairness delay excessive requests.
const (
	clientQPS   = 50
	clientBurst = 100
)

// Client calls one API server. It is safe for concurrent use.
type Client struct {
	config *rest.Config
	http   *http.Client
}

// Connect returns a client. It sends no request yet.
func Connect(c Cluster) (*Client, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	config.UserAgent, config.QPS, config.Burst = c.UserAgent, clientQPS, clientBurst
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Client{config: config, http: client}, nil
}

func (c Cluster) config() (*rest.Config, error) {
	if c.Kubeconfig == "" && len(c.Files) == 0 {
		return rest.InClusterConfig()
	}
	if c.Kubeconfig != "" {
		if _, err := os.Stat(c.Kubeconfig); err != nil {
			return nil, err
		}
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig, Precedence: c.Files}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context})
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("the file names no cluster")
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return config, nil
}

// UserFiles returns the files that kubectl reads by default, if any of them exists: those of $KUBECONFIG, or ~/.kube/config.
func UserFiles() []string {
	files := clientcmd.NewDefaultClientConfigLoadingRules().GetLoadingPrecedence()
	for _, f := range files {
		if _, err := os.Stat(f); err == nil {
			return files
		}
	}
	return nil
}

// InCluster reports whether this process runs in a Pod of a cluster.
func InCluster() bool {
	_, err := rest.InClusterConfig()
	return !errors.Is(err, rest.ErrNotInCluster)
}

// Address returns the API server's address.
func (c *Client) Address() string { return c.config.Host }

// Close closes idle connections.
func (c *Client) Close() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }

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
	client, err := c.restOf(resource.GroupVersion(), register)
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
