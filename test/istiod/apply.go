package istiod

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/moonsail/moonsail/test/kubetest"
	"github.com/moonsail/moonsail/test/meshtest"
)

const (
	rootNamespace = "istio-system"
	meshConfigMap = "istio" // in the root namespace
)

// applied is a case in the cluster.
type applied struct {
	c          *kubetest.Cluster
	texts      []string // of the objects to delete
	namespaces []string
	labelled   []string // namespaces to make plain again
	refused    []string // what the API server said
}

// apply writes the case's objects, and a Pod for each proxy without one, and waits for what Kubernetes adds to them.
func apply(t *testing.T, c *kubetest.Cluster, k *testCase) *applied {
	t.Helper()
	a := &applied{c: c}
	t.Cleanup(func() { a.remove(t) })
	docs := slices.Clone(k.documents)
	ips, names := map[string]bool{}, map[[2]string]bool{}
	for _, o := range docs {
		if o.GetKind() == "Pod" {
			names[[2]string{text(o.GetNamespace(), metav1.NamespaceDefault), o.GetName()}] = true
			for _, ip := range kubetest.PodAddresses(o) {
				ips[ip] = true
			}
		}
	}
	for _, p := range k.proxies {
		if !ips[p.IP] && p.IP != "" && !names[[2]string{p.Namespace, p.Name}] {
			docs = append(docs, podOf(p))
		}
	}
	docs, err := withMeshConfig(docs, k)
	require.NoError(t, err)
	docs = append(docs, gatewayServices(docs)...)
	docs = append(docs, secretsOf(t, k)...)
	var pods []*unstructured.Unstructured
	for _, o := range docs {
		o = prepared(o)
		a.namespace(t, o)
		text, err := json.Marshal(o.Object)
		require.NoError(t, err)
		if err := c.TryApply(t.Context(), "", string(text)); err != nil {
			a.refused = append(a.refused, fmt.Sprintf("%s/%s/%s: %v", o.GetKind(), o.GetNamespace(), o.GetName(), err))
			continue
		}
		switch o.GetKind() {
		case "Namespace":
			a.labelled = append(a.labelled, o.GetName())
			continue
		case "Pod":
			pods = append(pods, o)
		case "ConfigMap":
			if o.GetName() == meshConfigMap && o.GetNamespace() == rootNamespace {
				continue // the next case has its own
			}
		}
		a.texts = append(a.texts, string(text))
	}
	for _, p := range pods {
		if node, _, _ := unstructured.NestedString(p.Object, "spec", "nodeName"); node != "" && !kubeletOf[node] {
			continue // no kubelet reports its state
		}
		c.Eventually(t, "the state of Pod "+p.GetName(), func(ctx context.Context) error { return podStarted(ctx, c, p) })
	}
	for _, ns := range a.namespaces {
		c.Eventually(t, "endpoints in "+ns, func(ctx context.Context) error { return endpointsWritten(ctx, c, ns) })
	}
	return a
}

// withMeshConfig adds the ConfigMap with the case's MeshConfig, unless the case has one.
func withMeshConfig(docs []*unstructured.Unstructured, k *testCase) ([]*unstructured.Unstructured, error) {
	for _, o := range docs {
		if o.GetKind() == "ConfigMap" && o.GetName() == meshConfigMap && o.GetNamespace() == rootNamespace {
			return docs, nil
		}
	}
	text, err := yaml.Marshal(k.mesh)
	if err != nil {
		return nil, err
	}
	return append(docs, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": meshConfigMap, "namespace": rootNamespace},
		"data": map[string]any{"mesh": string(text)},
	}}), nil
}

// gatewayServices returns the Service that a control plane makes for each deployed Gateway of the Gateway API.
func gatewayServices(docs []*unstructured.Unstructured) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, o := range docs {
		class, _, _ := unstructured.NestedString(o.Object, "spec", "gatewayClassName")
		addresses, _, _ := unstructured.NestedSlice(o.Object, "spec", "addresses")
		if o.GetKind() != "Gateway" || class != "istio" && class != "moonsail" || len(addresses) > 0 {
			continue
		}
		seen := map[any]bool{}
		var ports []any
		listeners, _, _ := unstructured.NestedSlice(o.Object, "spec", "listeners")
		for _, e := range listeners {
			l, _ := e.(map[string]any)
			if port := l["port"]; port != nil && !seen[port] && l["protocol"] != "UDP" {
				seen[port] = true
				ports = append(ports, map[string]any{"name": fmt.Sprintf("%v-%v", strings.ToLower(fmt.Sprint(l["protocol"])), port), "port": port})
			}
		}
		ns := o.GetNamespace()
		if ns == "" {
			ns = metav1.NamespaceDefault
		}
		if len(ports) > 0 {
			out = append(out, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": o.GetName() + "-istio", "namespace": ns},
				"spec": map[string]any{"ports": ports, "selector": map[string]any{"gateway.networking.k8s.io/gateway-name": o.GetName()}},
			}})
		}
	}
	return out
}

// podOf returns the Pod of a proxy.
func podOf(p *meshtest.Proxy) *unstructured.Unstructured {
	set := map[string]any{}
	for k, v := range p.Labels {
		set[k] = v
	}
	var ports []any
	for name, port := range p.Ports {
		ports = append(ports, map[string]any{"name": name, "containerPort": int64(port)})
	}
	var ips []any
	for _, ip := range append([]string{p.IP}, p.OtherIPs...) {
		ips = append(ips, map[string]any{"ip": ip})
	}
	container := map[string]any{"name": "app"}
	if len(ports) > 0 {
		container["ports"] = ports
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": p.Name, "namespace": p.Namespace, "labels": set},
		// A case may have Nodes of its own, which have no kubelet.
		"spec":   map[string]any{"serviceAccountName": p.ServiceAccount, "nodeName": "node-1", "containers": []any{container}},
		"status": map[string]any{"podIP": p.IP, "podIPs": ips},
	}}
}

// prepared returns the object as it is applied. Gateways of Moonsail's class get Istio's, which both control planes serve.
func prepared(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	kubetest.CompletePod(o)
	if o.GetKind() == "Gateway" && strings.HasPrefix(o.GetAPIVersion(), "gateway.networking.k8s.io/") {
		if class, _, _ := unstructured.NestedString(o.Object, "spec", "gatewayClassName"); class == "moonsail" {
			_ = unstructured.SetNestedField(o.Object, "istio", "spec", "gatewayClassName")
		}
	}
	if o.GetNamespace() == "" && !clusterScoped[o.GetKind()] {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	return o
}

// kubeletOf are the nodes of the cluster.
var kubeletOf = map[string]bool{"node-1": true, "node-2": true, "node-3": true}

var clusterScoped = map[string]bool{
	"Namespace": true, "Node": true, "GatewayClass": true, "ClusterRole": true, "ClusterRoleBinding": true, "CustomResourceDefinition": true,
}

// namespace makes an object's namespace and, for a Pod, its service account.
func (a *applied) namespace(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	ns := o.GetNamespace()
	if ns == "" {
		return
	}
	core := a.c.Client.CoreV1()
	if !slices.Contains(a.namespaces, ns) {
		a.namespaces = append(a.namespaces, ns)
		_, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
	}
	account := "default"
	if name, _, _ := unstructured.NestedString(o.Object, "spec", "serviceAccountName"); name != "" && o.GetKind() == "Pod" && name != account {
		account = name
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := core.ServiceAccounts(ns).Create(t.Context(), sa, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
	}
	a.c.Eventually(t, "a service account in "+ns, func(ctx context.Context) error {
		_, err := core.ServiceAccounts(ns).Get(ctx, account, metav1.GetOptions{})
		return err
	})
}

// podStarted returns an error until the kubelet has written the Pod's state.
func podStarted(ctx context.Context, c *kubetest.Cluster, o *unstructured.Unstructured) error {
	p, err := c.Client.CoreV1().Pods(o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	ready := o.GetAnnotations()[kubetest.AnnotationReady] != "false" && o.GetAnnotations()[kubetest.AnnotationReadyAfter] == ""
	if p.Status.PodIP == "" || ready && !podReady(p) {
		return fmt.Errorf("it is %s, address %q", p.Status.Phase, p.Status.PodIP)
	}
	return nil
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// endpointsWritten returns an error until the EndpointSlices of the Services with selectors have all Pods.
func endpointsWritten(ctx context.Context, c *kubetest.Cluster, ns string) error {
	services, err := c.Client.CoreV1().Services(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	pods, err := c.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, s := range services.Items {
		if len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName || len(s.Spec.Ports) == 0 {
			continue
		}
		has, err := c.Endpoints(ctx, ns, s.Name)
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.Labels)) || p.DeletionTimestamp != nil || p.Status.PodIP == "" {
				continue
			}
			listed, ready := false, false
			for _, ip := range p.Status.PodIPs {
				if e, ok := has[ip.IP]; ok {
					listed, ready = true, e.Conditions.Ready != nil && *e.Conditions.Ready
				}
			}
			if !listed || ready != (podReady(&p) || s.Spec.PublishNotReadyAddresses) {
				return fmt.Errorf("service %s has no up-to-date endpoint for Pod %s", s.Name, p.Name)
			}
		}
	}
	return nil
}

// sentinelNamespace has a ServiceEntry that is written after each case, and a Sidecar that shows it to the proxy watcher.
const sentinelNamespace = "sentinel"

// watcher is the proxy that waits for the sentinel.
var watcher = &meshtest.Proxy{Type: "sidecar", Name: "watcher", Namespace: sentinelNamespace, IP: "10.254.254.254", ServiceAccount: "default", Interception: "REDIRECT"}

// sentinel is the host of a ServiceEntry that is written after all objects of a case.
func sentinel(n int) string { return fmt.Sprintf("case-%d.sentinel.example", n) }

// writeSentinel writes it. A proxy that has its cluster has what was written before, save for races between kinds, after
// which the configuration changes once more.
func writeSentinel(t *testing.T, c *kubetest.Cluster, n int) {
	t.Helper()
	o := map[string]any{
		"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
		"metadata": map[string]any{"name": "sentinel", "namespace": sentinelNamespace},
		"spec": map[string]any{
			"hosts": []any{sentinel(n)}, "resolution": "DNS", "location": "MESH_EXTERNAL", "exportTo": []any{"*"},
			"ports": []any{map[string]any{"number": 65, "name": "tcp", "protocol": "TCP"}}, "addresses": []any{"240.254.254.254"},
		},
	}
	text, err := yaml.Marshal(o)
	require.NoError(t, err)
	c.Apply(t, "", string(text))
}

// hosts returns the nodes of Pods by their addresses, and by NAMESPACE/NAME.
func (a *applied) hosts(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, ns := range a.namespaces {
		list, err := a.c.Client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for i := range list.Items {
			out[ns+"/"+list.Items[i].Name] = list.Items[i].Spec.NodeName
			for _, ip := range list.Items[i].Status.PodIPs {
				out[ip.IP] = list.Items[i].Spec.NodeName
			}
		}
	}
	return out
}

// remove deletes the case's objects, and waits for the end of Pods and endpoints.
func (a *applied) remove(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, text := range slices.Backward(a.texts) {
		require.NoError(t, a.c.TryDelete(ctx, "", text))
	}
	for _, ns := range a.labelled {
		eventually(ctx, t, "namespace "+ns+" without the labels of the case", func() error { return a.plain(ctx, ns) })
	}
	now := int64(0)
	for _, ns := range a.namespaces {
		require.NoError(t, a.c.Client.CoreV1().Pods(ns).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}))
	}
	for _, ns := range a.namespaces {
		eventually(ctx, t, "the end of all in "+ns, func() error { return a.c.Empty(ctx, ns) })
	}
}

// eventually waits until look returns no error. After the end of ctx the test fails with the last error.
func eventually(ctx context.Context, t *testing.T, what string, look func() error) {
	t.Helper()
	for {
		err := look()
		if err == nil {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			require.NoError(t, err, what)
		}
	}
}

// plain removes labels and annotations from a namespace. It stays: while it is terminating, it accepts no objects.
func (a *applied) plain(ctx context.Context, name string) error {
	client := a.c.Client.CoreV1().Namespaces()
	ns, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ns.Annotations = nil
	ns.Labels = map[string]string{corev1.LabelMetadataName: name}
	_, err = client.Update(ctx, ns, metav1.UpdateOptions{})
	return err
}
