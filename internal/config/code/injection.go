package code

var injection = []Page{
	{InjectionLabelValue, "The label of injection has no valid value",
		"`istio-injection` of a namespace is enabled or disabled, and `sidecar.istio.io/inject` of a Pod is \"true\" or \"false\". Another value switches nothing.",
		"Write one of these values.",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio-injection: enable}}\n", []string{"IST0125"}},
	{InjectionLabelMisplaced, "The label of injection is on the wrong object",
		"Namespaces have `istio-injection`, and Pods have `sidecar.istio.io/inject`. On the other object the label has no effect.",
		"Write the label that the object takes.",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {sidecar.istio.io/inject: \"true\"}}\n", []string{"IST0107"}},
	{InjectionLabelConflict, "A namespace has two labels of injection",
		"`istio.io/rev` has no effect beside `istio-injection`.",
		"Keep one of the two labels.",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio-injection: enabled, istio.io/rev: canary}}\n", []string{"IST0123"}},
	{UnknownAnnotation, "The annotation is unknown",
		"Istio has no annotation of this name for sidecars, so it has no effect.",
		"Write the name that the message suggests.",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, namespace: shop}\nspec:\n  template:\n    metadata: {labels: {app: a}, annotations: {sidecar.istio.io/proxyCpu: 100m}}\n    spec: {containers: [{name: app, image: a}]}\n", []string{"IST0108"}},
}
