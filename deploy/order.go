package deploy

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// order is the order in which kinds are applied: what others need comes first. Other kinds come before webhooks, which are
// last: they act on objects as soon as they exist, and fail while no control plane runs.
var order = []string{
	"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
	"ConfigMap", "Secret", "Service", "NetworkPolicy", "PodDisruptionBudget", "Deployment", "DaemonSet", "HorizontalPodAutoscaler",
}

// last are the kinds that come after all others.
var last = []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}

func place(kind string) int {
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return len(order) + 1 + slices.Index(last, kind)
}

// SortForInstall sorts objects into the order in which they must be applied. Deletion is in the opposite order.
func SortForInstall(objects []*unstructured.Unstructured) {
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return place(a.GetKind()) - place(b.GetKind()) })
}
