package kubetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// CompletePod adds what an API server requires of a Pod, and passes the case's status to the kubelet.
func CompletePod(o *unstructured.Unstructured) {
	if o.GetKind() != "Pod" {
		return
	}
	if list, _, _ := unstructured.NestedSlice(o.Object, "spec", "containers"); len(list) == 0 {
		_ = unstructured.SetNestedSlice(o.Object, []any{map[string]any{"name": "app"}}, "spec", "containers")
	}
	list, _, _ := unstructured.NestedSlice(o.Object, "spec", "containers")
	for i := range list {
		c := list[i].(map[string]any)
		if c["name"] == nil {
			c["name"] = fmt.Sprintf("app-%d", i)
		}
		if c["image"] == nil {
			c["image"] = "app"
		}
	}
	_ = unstructured.SetNestedSlice(o.Object, list, "spec", "containers")
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AnnotationIP] = strings.Join(PodAddresses(o), ",")
	annotations[AnnotationStopAfter] = "0s"
	if notReady(o) {
		annotations[AnnotationReady] = "false"
	}
	o.SetAnnotations(annotations)
	delete(o.Object, "status")
}

// PodAddresses returns the addresses in the status of a Pod.
func PodAddresses(o *unstructured.Unstructured) []string {
	var out []string
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "podIPs")
	for _, ip := range list {
		out = append(out, fmt.Sprint(ip.(map[string]any)["ip"]))
	}
	if ip, _, _ := unstructured.NestedString(o.Object, "status", "podIP"); ip != "" && len(out) == 0 {
		out = append(out, ip)
	}
	return out
}

func notReady(o *unstructured.Unstructured) bool {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return slices.ContainsFunc(list, func(c any) bool {
		m := c.(map[string]any)
		return m["type"] == "Ready" && m["status"] != "True"
	})
}

// BareNodes removes the localities of nodes, for tests in which labels of Pods state them.
func (c *Cluster) BareNodes(t testing.TB) {
	t.Helper()
	nodes, err := c.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:null,%q:null}}}`, corev1.LabelTopologyRegion, corev1.LabelTopologyZone)
	for i := range nodes.Items {
		_, err := c.Client.CoreV1().Nodes().Patch(t.Context(), nodes.Items[i].Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}
