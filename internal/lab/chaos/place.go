package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/security/ca"
)

// place is where the mesh's objects are. Both methods may be repeated after an error, whether or not they took effect.
type place interface {
	put(ctx context.Context, name, object string) error
	remove(ctx context.Context, name, object string) error
}

// directory is a place of files, one for each object.
type directory string

func (d directory) put(_ context.Context, name, object string) error {
	path := d.path(name)
	next := filepath.Join(string(d), "."+filepath.Base(path)+".next")
	if err := os.WriteFile(next, []byte(object), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func (d directory) remove(_ context.Context, name, _ string) error {
	if err := os.Remove(d.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d directory) path(name string) string {
	return filepath.Join(string(d), strings.ReplaceAll(name, "/", "-")+".yaml")
}

// cluster is an API server. Objects are applied on the server's side, so that a repeated write has no conflict.
type cluster struct {
	http   *http.Client
	client dynamic.Interface
}

// serverTime bounds a request to the API server.
const serverTime = 3 * time.Second

func connectCluster(kubeconfig string) (*cluster, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Timeout, cfg.WarningHandler = -1, serverTime, rest.NoWarnings{}
	c := &cluster{}
	if c.http, err = rest.HTTPClientFor(cfg); err != nil {
		return nil, err
	}
	c.client, err = dynamic.NewForConfigAndClient(cfg, c.http)
	return c, err
}

// close ends idle connections.
func (c *cluster) close() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }

// put applies the documents of an object in order: those that others refer to come first.
func (c *cluster) put(ctx context.Context, _, object string) error {
	for _, document := range strings.Split(object, separator) {
		u, in, err := c.parse(document)
		if err != nil {
			return err
		}
		unstructured.RemoveNestedField(u.Object, "status") // the kubelet's
		if _, err = in.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "moonsail-lab", Force: true}); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes them in the opposite order.
func (c *cluster) remove(ctx context.Context, _, object string) error {
	documents := strings.Split(object, separator)
	slices.Reverse(documents)
	for _, document := range documents {
		u, in, err := c.parse(document)
		if err != nil {
			return err
		}
		if err := in.Delete(ctx, u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// roots returns the mesh's root certificates, which control planes keep in each namespace.
func (c *cluster) roots(ctx context.Context) (string, error) {
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	u, err := c.client.Resource(resource).Namespace(namespace).Get(ctx, "istio-ca-root-cert", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	text, _, err := unstructured.NestedString(u.Object, "data", ca.RootFile)
	if err == nil && text == "" {
		err = errors.New("ConfigMap istio-ca-root-cert: has no roots")
	}
	return text, err
}

func (c *cluster) parse(object string) (*unstructured.Unstructured, dynamic.ResourceInterface, error) {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(object), &u.Object); err != nil {
		return nil, nil, fmt.Errorf("%.80q: %w", object, err)
	}
	in := c.client.Resource(resourceOf(u.GroupVersionKind()))
	if ns := u.GetNamespace(); ns != "" {
		return u, in.Namespace(ns), nil
	}
	return u, in, nil
}

// resourceOf returns the resource of a kind: its plural in lower case.
func resourceOf(k schema.GroupVersionKind) schema.GroupVersionResource {
	name := strings.ToLower(k.Kind)
	if stem, ok := strings.CutSuffix(name, "y"); ok {
		name = stem + "ie"
	}
	return k.GroupVersion().WithResource(name + "s")
}

// retryEvery is the pause before a write is repeated.
const retryEvery = 200 * time.Millisecond

// until repeats a write until it succeeds. refused is the error of an API server that does not take the object.
func until(ctx context.Context, write func(context.Context) error) (refused error) {
	for {
		err := write(ctx)
		if err == nil || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) {
			return err
		}
		if clock.Sleep(ctx, retryEvery) != nil {
			return err
		}
	}
}
