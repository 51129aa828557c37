package kubetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// alone are the clusters that tests have returned.
var alone struct {
	mu   sync.Mutex // guards idle
	idle []*Cluster
}

// Alone returns a cluster that no other test uses, to kill, pause or inspect as a whole. A test that passes returns it,
// running, for the next one, because a start takes 10 s of CPU time. The next test finds no namespaces of others, and
// no objects of a mesh in the root namespace; cluster-scoped objects stay.
func Alone(t testing.TB) *Cluster {
	t.Helper()
	c := takeIdle()
	if c == nil {
		var err error
		if c, err = start(nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the Kubernetes API server:\n%s", c.Log())
			c.Close()
			return
		}
		giveBack(c)
	})
	t.Logf("Kubernetes API server %s, pid %d", c.Server(), c.Pid())
	c.sweep(t)
	return c
}

func takeIdle() *Cluster {
	alone.mu.Lock()
	defer alone.mu.Unlock()
	if len(alone.idle) == 0 {
		return nil
	}
	c := alone.idle[0]
	alone.idle = alone.idle[1:]
	return c
}

func giveBack(c *Cluster) {
	alone.mu.Lock()
	defer alone.mu.Unlock()
	alone.idle = append(alone.idle, c)
}

// ownNamespaces exist when a cluster starts.
var ownNamespaces = []string{rootNamespace, metav1.NamespaceDefault, "kube-node-lease", metav1.NamespacePublic, metav1.NamespaceSystem}

// rootNamespace is the mesh's.
const rootNamespace = "istio-system"

// ofMeshes are the resources that a mesh leaves in its root namespace.
var ofMeshes = []schema.GroupVersionResource{
	{Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "services"},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}, {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
}

// sweep removes what other tests have left.
func (c *Cluster) sweep(t testing.TB) {
	t.Helper()
	c.Eventually(t, "nothing is left of other tests", func(ctx context.Context) error {
		var errs []error
		for _, kind := range ofMeshes {
			errs = append(errs, c.deleteAll(ctx, kind))
		}
		list, err := c.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, ns := range list.Items {
			if !slices.Contains(ownNamespaces, ns.Name) {
				errs = append(errs, fmt.Errorf("namespace %s: %s", ns.Name, ns.Status.Phase))
			}
		}
		return errors.Join(errs...)
	})
}

// deleteAll deletes all objects of a kind in the root namespace. Services must be deleted one by one.
func (c *Cluster) deleteAll(ctx context.Context, kind schema.GroupVersionResource) error {
	in := c.Dynamic.Resource(kind).Namespace(rootNamespace)
	list, err := in.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range list.Items {
		if o.GetName() != "kube-root-ca.crt" { // a controller creates it again at once
			errs = append(errs, in.Delete(ctx, o.GetName(), metav1.DeleteOptions{}))
		}
	}
	return errors.Join(errs...)
}
