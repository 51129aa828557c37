// Package meshkube writes a lab's mesh into a Kubernetes API server.
package meshkube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is an API server as a place for a mesh. A file there is the set of objects in it. A change writes the objects that
// differ.
type Cluster struct {
	client dynamic.Interface
	// Without a time limit of requests.
	watcher dynamic.Interface
	slices  discoveryclient.EndpointSlicesGetter

	mu     sync.Mutex // guards the fields below, not the requests
	files  map[string][]*object
	spaces map[string]bool // namespaces that exist
}

// object is one object as it was last written.
type object struct {
	resource  schema.GroupVersionResource
	namespace string
	name      string
	content   string // the document
	version   string // its resourceVersion
}

// requestTime bounds one request.
const requestTime = 30 * time.Second

// Connect reads a kubeconfig file and connects to the API server of its current context.
func Connect(ctx context.Context, kubeconfig string) (*Cluster, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	cfg.QPS, cfg.Timeout = -1, requestTime // the lab must not limit the server
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	cfg.Timeout = 0
	watcher, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf // slices of hundreds of endpoints change many times a second
	slices, err := discoveryclient.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	c := &Cluster{client: client, watcher: watcher, slices: slices, files: map[string][]*object{}, spaces: map[string]bool{}}
	return c, c.checkEmpty(ctx)
}

// namespaces is the resource of namespaces.
var namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// mark labels the lab's namespaces.
const mark = "moonsail.dev/lab"

// checkEmpty refuses a cluster that may contain the mesh of another run.
func (c *Cluster) checkEmpty(ctx context.Context) error {
	list, err := c.client.Resource(namespaces).List(ctx, metav1.ListOptions{LabelSelector: mark})
	if err != nil {
		return fmt.Errorf("cannot list namespaces: %w", err)
	}
	if len(list.Items) > 0 {
		return fmt.Errorf("namespace %s: exists, from another run of the lab: delete it", list.Items[0].GetName())
	}
	return nil
}

// Stage implements meshfiles.Place.
func (c *Cluster) Stage(name, content string) (commit func() error, err error) {
	next, parsed, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return func() error { return c.replace(name, next, parsed) }, nil
}

// Remove implements meshfiles.Place.
func (c *Cluster) Remove(name string) (commit func() error, err error) {
	return func() error { return c.replace(name, nil, nil) }, nil
}

// replace writes the objects of a file that differ and deletes those that are no longer in it, all at the same time, so that
// they are one change, as with a renamed file.
func (c *Cluster) replace(name string, next []*object, parsed []*unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	c.mu.Lock()
	old := c.files[name]
	c.mu.Unlock()
	all, ctx := errgroup.WithContext(ctx)
	for i, o := range next {
		all.Go(func() error { return c.write(ctx, o, find(old, o), parsed[i]) })
	}
	for _, o := range old {
		if find(next, o) == nil {
			all.Go(func() error { return c.remove(ctx, o) })
		}
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files[name] = next; next == nil {
		delete(c.files, name)
	}
	return nil
}

// write creates an object, or replaces it if it differs from the old one.
func (c *Cluster) write(ctx context.Context, o, old *object, u *unstructured.Unstructured) (err error) {
	switch {
	case old == nil:
		if err := c.makeNamespace(ctx, o.namespace); err != nil {
			return err
		}
		u, err = c.in(o).Create(ctx, u, metav1.CreateOptions{})
	case old.content == o.content:
		o.version = old.version
		return nil
	default:
		u.SetResourceVersion(old.version)
		u, err = c.in(o).Update(ctx, u, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	o.version = u.GetResourceVersion()
	return nil
}

func (c *Cluster) remove(ctx context.Context, o *object) error {
	if err := c.in(o).Delete(ctx, o.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (c *Cluster) in(o *object) dynamic.ResourceInterface {
	return c.client.Resource(o.resource).Namespace(o.namespace)
}

func find(list []*object, o *object) *object {
	for _, x := range list {
		if x.resource == o.resource && x.namespace == o.namespace && x.name == o.name {
			return x
		}
	}
	return nil
}

// makeNamespace creates a namespace that the lab needs, once.
func (c *Cluster) makeNamespace(ctx context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spaces[name] {
		return nil
	}
	ns := &unstructured.Unstructured{}
	ns.SetAPIVersion("v1")
	ns.SetKind("Namespace")
	ns.SetName(name)
	ns.SetLabels(map[string]string{mark: "propagation"})
	if _, err := c.client.Resource(namespaces).Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	c.spaces[name] = true
	return nil
}

// Clear deletes the lab's objects and namespaces, and waits until they are gone.
func (c *Cluster) Clear() error {
	ctx, cancel := context.WithTimeout(context.Background(), clearTime)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs error
	for name := range c.spaces {
		if err := c.client.Resource(namespaces).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = errors.Join(errs, err)
		}
	}
	for name := range c.spaces {
		errs = errors.Join(errs, c.awaitGone(ctx, name))
	}
	c.files, c.spaces = map[string][]*object{}, map[string]bool{}
	return errs
}

// Limits of clearing.
const (
	clearTime = 3 * time.Minute
	clearPoll = 100 * time.Millisecond
)

func (c *Cluster) awaitGone(ctx context.Context, namespace string) error {
	tick := time.NewTicker(clearPoll)
	defer tick.Stop()
	for {
		_, err := c.client.Resource(namespaces).Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("namespace %s: not deleted: %w", namespace, errors.Join(ctx.Err(), err))
		}
	}
}

// resourceOf returns the resource of a kind: its plural in lower case. All kinds of a lab's mesh form it with an s.
func resourceOf(k schema.GroupVersionKind) schema.GroupVersionResource {
	return k.GroupVersion().WithResource(strings.ToLower(k.Kind) + "s")
}
