package node

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// selects reports whether a DaemonSet has a Pod on a node, as its controller decides. In doubt it has.
func selects(set *appsv1.DaemonSet, node *corev1.Node) bool {
	pod := &set.Spec.Template.Spec
	for key, value := range pod.NodeSelector {
		if got, ok := node.Labels[key]; !ok || got != value {
			return false
		}
	}
	return matchesAffinity(pod.Affinity, node) && !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return repels(&t, pod.Tolerations) })
}

// matchesAffinity reports whether one of the required terms matches a node.
func matchesAffinity(a *corev1.Affinity, node *corev1.Node) bool {
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	return slices.ContainsFunc(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return len(t.MatchExpressions)+len(t.MatchFields) > 0 && matchesAll(t.MatchExpressions, node.Labels) &&
			matchesAll(t.MatchFields, labels.Set{"metadata.name": node.Name})
	})
}

// operators are those of labels by the names that they have in Pods.
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn, corev1.NodeSelectorOpExists: selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist, corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}

func matchesAll(list []corev1.NodeSelectorRequirement, values labels.Set) bool {
	return !slices.ContainsFunc(list, func(r corev1.NodeSelectorRequirement) bool {
		required, err := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
		return err == nil && !required.Matches(values)
	})
}

// repels reports whether a taint keeps a DaemonSet's Pods from a node. Those of the node's conditions do not, or not for long.
func repels(taint *corev1.Taint, tolerations []corev1.Toleration) bool {
	domain, _, _ := strings.Cut(taint.Key, "/")
	if taint.Effect == corev1.TaintEffectPreferNoSchedule || strings.HasPrefix(domain, "node.") && strings.HasSuffix(domain, ".kubernetes.io") {
		return false
	}
	return !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		equal := t.Operator == "" || t.Operator == corev1.TolerationOpEqual
		return (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" || t.Key == taint.Key) && (!equal || t.Value == taint.Value)
	})
}
