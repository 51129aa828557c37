package config

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/moonsail/moonsail/internal/config/problem"
)

// What Istio's own control plane calls its class of Ingresses.
const (
	ingressClass           = "istio"
	ingressController      = "istio.io/ingress-controller"
	annotationIngressClass = "kubernetes.io/ingress.class"
)

// unserved reports objects of Kubernetes' kinds that Istio serves and this mesh does not.
func unserved(r *problem.Report, kind apiKind, top map[string]any) {
	if kind.group != "networking.k8s.io" {
		return
	}
	const instead = "write a Gateway and a VirtualService, or a Gateway and an HTTPRoute of the Gateway API"
	switch class := textAt(top, "spec", "ingressClassName"); kind.kind {
	case "Ingress":
		if class == ingressClass {
			r.Warnf("spec.ingressClassName", "Ingresses have no effect in Moonsail; %s", instead)
		} else if textAt(top, "metadata", "annotations", annotationIngressClass) == ingressClass {
			r.Warnf(problem.Path("metadata.annotations").Key(annotationIngressClass), "Ingresses have no effect in Moonsail; %s", instead)
		}
	case "IngressClass":
		if textAt(top, "spec", "controller") == ingressController {
			r.Warnf("spec.controller", "Ingresses of this class have no effect in Moonsail; %s", instead)
		}
	}
}

// textAt is the text at a place in a document; empty: there is none.
func textAt(in map[string]any, fields ...string) string {
	text, _, _ := unstructured.NestedString(in, fields...) // another type there is not text
	return text
}
