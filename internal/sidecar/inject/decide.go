package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Decide reports whether a Pod gets a sidecar, and why not. The Pod's label takes precedence over its annotation, both
// over selectors, and these over the policy.
func (c *Config) Decide(pod *corev1.Pod) (inject bool, why string) {
	switch {
	case pod.Spec.HostNetwork:
		return false, "it uses the host's network, where rules of interception would apply to the host"
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return false, "it mirrors a static Pod, which runs without the change, and Kubernetes refuses service account tokens in a mirror"
	case slices.Contains(c.ExcludedNamespaces, pod.Namespace):
		return false, fmt.Sprintf("namespace %s is excluded", pod.Namespace)
	}
	said, where := pod.Annotations[annotationInject], "annotation"
	if v, ok := pod.Labels[labelInject]; ok {
		said, where = v, "label"
	}
	switch said {
	case "true":
		return true, ""
	case "false":
		return false, fmt.Sprintf("its %s %s is false", where, labelInject)
	}
	set := labels.Set(pod.Labels)
	for _, s := range c.never {
		if s.Matches(set) {
			return false, fmt.Sprintf("neverInjectSelector %q matches it", s)
		}
	}
	for _, s := range c.always {
		if s.Matches(set) {
			return true, ""
		}
	}
	return c.Policy == PolicyEnabled, fmt.Sprintf("the policy is %s, and the Pod does not request a sidecar (label %s: \"true\")", c.Policy, labelInject)
}

// IgnoredLabel returns why the label of injection has no effect on a Pod; "": it has one, or is not set.
func IgnoredLabel(pod *corev1.Pod) string {
	switch v, set := pod.Labels[labelInject]; {
	case !set, v == "true", v == "false":
		return ""
	default:
		return fmt.Sprintf("the label %s: %q has no effect: write \"true\" or \"false\"", labelInject, v)
	}
}
