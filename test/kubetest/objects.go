package kubetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// Annotations of pods that change how the cluster's kubelet treats them.
const (
	// AnnotationIP is the pod's address, or addresses separated by commas. Loopback addresses are allowed.
	AnnotationIP = "kubelet.moonsail.dev/ip"
	// AnnotationReady is "false" while the pod's containers are not ready.
	AnnotationReady = "kubelet.moonsail.dev/ready"
	// AnnotationReadyAfter is a duration from the containers' start until they are ready.
	AnnotationReadyAfter = "kubelet.moonsail.dev/ready-after"
	// AnnotationStopAfter is a duration from the pod's deletion to its containers' end;
	// the grace period bounds it.
	AnnotationStopAfter = "kubelet.moonsail.dev/stop-after"
)

// Empty returns an error while a namespace has Pods or EndpointSlices.
func (c *Cluster) Empty(ctx context.Context, ns string) error {
	pods, err := c.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	parts, err := c.Client.DiscoveryV1().EndpointSlices(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	left := len(pods.Items)
	for _, s := range parts.Items {
		if s.Name != "kubernetes" {
			left++
		}
	}
	if left > 0 {
		return fmt.Errorf("%d objects are left", left)
	}
	return nil
}

// fieldManager owns the fields that tests apply.
const fieldManager = "kubetest"

var (
	namespaces atomic.Uint64
	notInNames = regexp.MustCompile(`[^a-z0-9]+`)
)

// Namespace creates a namespace for a test, ready for pods. It is deleted after the test.
func (c *Cluster) Namespace(t testing.TB, labels ...string) string {
	t.Helper()
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	name = fmt.Sprintf("%s-%d", strings.Trim(name[:min(len(name), 40)], "-"), namespaces.Add(1))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		ns.Labels[key] = value
	}
	if _, err := c.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = c.Client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}) // the cluster may be gone on purpose
	})
	c.Eventually(t, "a default service account in "+name, func(ctx context.Context) error {
		_, err := c.Client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return name
}

// Eventually waits until look returns no error. After the time limit the test fails with the last error.
func (c *Cluster) Eventually(t testing.TB, what string, look func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := look(ctx)
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil { // else the time limit is why it failed
			last = err
		}
		select {
		case <-tick.C:
		case <-c.process.done:
			t.Fatalf("%s: %v; the API server has ended: %v", what, last, c.process.said())
		case <-ctx.Done():
			t.Fatalf("%s: not within %s: %v", what, patience, last)
		}
	}
}

// Apply applies the objects of a YAML text as `kubectl apply --server-side` does, in the given namespace unless they
// name one.
func (c *Cluster) Apply(t testing.TB, namespace, text string) {
	t.Helper()
	if err := c.TryApply(t.Context(), namespace, text); err != nil {
		t.Fatal(err)
	}
}

// TryApply is Apply for objects that may be refused.
func (c *Cluster) TryApply(ctx context.Context, namespace, text string) error {
	return c.each(namespace, text, func(res dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
		_, err := res.Apply(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		return err
	})
}

// TryApplyStatus writes the status of the objects of a YAML text.
func (c *Cluster) TryApplyStatus(ctx context.Context, namespace, text string) error {
	return c.each(namespace, text, func(res dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
		_, err := res.ApplyStatus(ctx, obj.GetName(), obj, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		return err
	})
}

// Delete deletes the objects that a YAML text names. It does not wait until they are gone.
func (c *Cluster) Delete(t testing.TB, namespace, text string) {
	t.Helper()
	if err := c.TryDelete(t.Context(), namespace, text); err != nil {
		t.Fatal(err)
	}
}

// TryDelete is Delete for a test that has ended. Objects that are gone already are no error.
func (c *Cluster) TryDelete(ctx context.Context, namespace, text string) error {
	return c.each(namespace, text, func(res dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
		err := res.Delete(ctx, obj.GetName(), metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// each calls do with every object of a YAML text until one call fails.
func (c *Cluster) each(namespace, text string, do func(dynamic.ResourceInterface, *unstructured.Unstructured) error) error {
	for dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096); ; {
		obj := &unstructured.Unstructured{}
		switch err := dec.Decode(&obj.Object); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(obj.Object) == 0:
			continue
		}
		res, err := c.resource(namespace, obj)
		if err != nil {
			return err
		}
		if err := do(res, obj); err != nil {
			return fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
}

// resource returns the client for an object's resource.
func (c *Cluster) resource(namespace string, obj *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	mapping, err := c.mapping(obj.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	res := c.Dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return res, nil
	}
	if obj.GetNamespace() == "" {
		obj.SetNamespace(namespace)
	}
	return res.Namespace(obj.GetNamespace()), nil
}

// mapping returns the API server's resource for a kind. It asks once, and again for kinds that were added since.
func (c *Cluster) mapping(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mapper != nil {
		if m, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err == nil {
			return m, nil
		}
	}
	groups, err := restmapper.GetAPIGroupResources(c.Client.Discovery())
	if err != nil {
		return nil, err
	}
	c.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	return c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
}

// Endpoints returns the endpoints in all EndpointSlices of a service, by address.
func (c *Cluster) Endpoints(ctx context.Context, namespace, service string) (map[string]discoveryv1.Endpoint, error) {
	list, err := c.Client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + service,
	})
	if err != nil {
		return nil, err
	}
	all := map[string]discoveryv1.Endpoint{}
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			for _, a := range e.Addresses {
				all[a] = e
			}
		}
	}
	return all, nil
}
