package istio

import (
	"encoding/json"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func policyRef(o *gatewayv1.BackendTLSPolicy) *GatewayRefs {
	out, v := &PolicyRef{}, &o.Spec.Validation
	for i := range o.Spec.TargetRefs {
		out.Targets = append(out.Targets, policyTarget(path("spec.targetRefs").i(i), o.Namespace, &o.Spec.TargetRefs[i]))
	}
	for i := range v.CACertificateRefs {
		out.Certificates = append(out.Certificates, localRef(path("spec.validation.caCertificateRefs").i(i), o.Namespace, &v.CACertificateRefs[i]))
	}
	if v.WellKnownCACertificates != nil {
		out.WellKnown = string(*v.WellKnownCACertificates)
	}
	return &GatewayRefs{Policy: out}
}

// policyTarget has the reference of a status in Ref, which calls the port a section, too.
func policyTarget(at path, ns string, t *gatewayv1.LocalPolicyTargetReferenceWithSectionName) ParentRef {
	out := ParentRef{ObjectRef: refOf(at, ns, "", "", &t.Group, &t.Kind, nil, t.Name)}
	if t.SectionName != nil {
		out.Section = string(*t.SectionName)
	}
	out.Ref, _ = json.Marshal(&gatewayv1.ParentReference{Group: &t.Group, Kind: &t.Kind, Name: t.Name, SectionName: t.SectionName}) // strings can always be written
	return out
}

func localRef(at path, ns string, r *gatewayv1.LocalObjectReference) ObjectRef {
	return refOf(at, ns, "", "", &r.Group, &r.Kind, nil, r.Name)
}
