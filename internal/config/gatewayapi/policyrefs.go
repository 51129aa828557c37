package gatewayapi

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/problem"
)

// AnnotationIgnorePolicy excludes a policy from the mesh if it is "true": the policy is for another implementation of the
// Gateway API.
const AnnotationIgnorePolicy = "istio.io/ignore-policy-attachment"

func isIgnored(o *metav1.ObjectMeta) bool {
	return strings.EqualFold(o.Annotations[AnnotationIgnorePolicy], "true")
}

func policyRef(o *gatewayv1.BackendTLSPolicy) *Refs {
	out, v := &PolicyRef{Ignored: isIgnored(&o.ObjectMeta)}, &o.Spec.Validation
	for i := range o.Spec.TargetRefs {
		out.Targets = append(out.Targets, policyTarget(problem.Path("spec.targetRefs").Index(i), o.Namespace, &o.Spec.TargetRefs[i]))
	}
	for i := range v.CACertificateRefs {
		out.Certificates = append(out.Certificates, localRef(problem.Path("spec.validation.caCertificateRefs").Index(i), o.Namespace, &v.CACertificateRefs[i]))
	}
	if v.WellKnownCACertificates != nil {
		out.WellKnown = string(*v.WellKnownCACertificates)
	}
	return &Refs{Policy: out}
}

// policyTarget has the reference of a status in Ref, which calls the port a section, too.
func policyTarget(at problem.Path, ns string, t *gatewayv1.LocalPolicyTargetReferenceWithSectionName) ParentRef {
	out := ParentRef{ObjectRef: refOf(at, ns, "", "", &t.Group, &t.Kind, nil, t.Name)}
	if t.SectionName != nil {
		out.Section = string(*t.SectionName)
	}
	out.Ref, _ = json.Marshal(&gatewayv1.ParentReference{Group: &t.Group, Kind: &t.Kind, Name: t.Name, SectionName: t.SectionName}) // strings can always be written
	return out
}

func localRef(at problem.Path, ns string, r *gatewayv1.LocalObjectReference) ObjectRef {
	return refOf(at, ns, "", "", &r.Group, &r.Kind, nil, r.Name)
}
