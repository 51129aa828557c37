package install

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is a kind of objects that the charts may contain.
type kind struct {
	schema.GroupVersionResource
	name       string
	namespaced bool
	optional   bool // a cluster may not have it
}

func builtIn(group, version, plural, name string, namespaced bool) kind {
	return kind{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: plural}, name: name, namespaced: namespaced}
}

// Kinds that the commands read and write themselves.
var (
	namespaces  = builtIn("", "v1", "namespaces", "Namespace", false)
	secrets     = builtIn("", "v1", "secrets", "Secret", true)
	configMaps  = builtIn("", "v1", "configmaps", "ConfigMap", true)
	services    = builtIn("", "v1", "services", "Service", true)
	pods        = builtIn("", "v1", "pods", "Pod", true)
	leases      = builtIn("coordination.k8s.io", "v1", "leases", "Lease", true)
	deployments = builtIn("apps", "v1", "deployments", "Deployment", true)
	daemonSets  = builtIn("apps", "v1", "daemonsets", "DaemonSet", true)
	definitions = builtIn("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false)
	mutating    = builtIn("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false)
	validating  = builtIn("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false)
	roles       = builtIn("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false)
	bindings    = builtIn("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false)
)

// kinds are all kinds of the charts, in the order in which they are deleted: what acts on objects of others first, what
// others need last.
var kinds = []kind{
	mutating, validating,
	builtIn("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true),
	deployments,
	daemonSets,
	{schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "servicemonitors"}, "ServiceMonitor", true, true},
	{schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "prometheusrules"}, "PrometheusRule", true, true},
	builtIn("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true),
	builtIn("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true),
	services, configMaps,
	builtIn("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true),
	builtIn("rbac.authorization.k8s.io", "v1", "roles", "Role", true),
	bindings, roles,
	builtIn("", "v1", "serviceaccounts", "ServiceAccount", true),
	secrets, leases, definitions, namespaces,
}

// kindOf returns the kind of an object.
func kindOf(o *unstructured.Unstructured) (kind, error) {
	gvk := o.GroupVersionKind()
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.Group == gvk.Group && k.Version == gvk.Version && k.name == gvk.Kind })
	if i < 0 {
		return kind{}, fmt.Errorf("%s: the kind %s is not known to this command", titleOf(o), gvk)
	}
	return kinds[i], nil
}

// titleOf names an object as in messages.
func titleOf(o *unstructured.Unstructured) string {
	if ns := o.GetNamespace(); ns != "" {
		return o.GetKind() + " " + ns + "/" + o.GetName()
	}
	return o.GetKind() + " " + o.GetName()
}
