package istio

import (
	"maps"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// BackendTLSPolicy decodes one. What keeps connections from being made, such as CAs that there are not, is no error: it is in
// force as the Gateway API wants it, which is better than plain text.
func (d Decoder) BackendTLSPolicy(o *gatewayv1.BackendTLSPolicy) (*model.BackendTLSPolicy, Problems) {
	c := d.start(model.KindBackendTLSPolicy, &o.ObjectMeta)
	at, v := path("spec.validation"), &o.Spec.Validation
	out := &model.BackendTLSPolicy{Meta: c.meta, SNI: strings.ToLower(string(v.Hostname))}
	out.Targets = c.backendTargets(path("spec.targetRefs"), o.Spec.TargetRefs)
	if v.Hostname == "" {
		c.errorf(at.f("hostname"), "is missing; give the name that servers are asked for, and that their certificates have")
	} else {
		c.checkHost(at.f("hostname"), string(v.Hostname), false)
	}
	c.backendCAs(at, v, out)
	for i := range v.SubjectAltNames {
		if name, ok := c.backendName(at.f("subjectAltNames").i(i), &v.SubjectAltNames[i]); ok {
			out.SubjectAltNames = append(out.SubjectAltNames, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Spec.Options)) {
		c.warnf(path("spec.options").k(string(name)), "has no effect")
	}
	return out, c.list
}

func (c *conv) backendTargets(at path, list []gatewayv1.LocalPolicyTargetReferenceWithSectionName) []model.BackendTarget {
	if len(list) == 0 {
		c.errorf(at, "is missing; name a Service")
	}
	var out []model.BackendTarget
	for i := range list {
		ref, at := policyTarget(at.i(i), c.meta.Namespace, &list[i]), at.i(i)
		switch {
		case !ref.IsService():
			c.warnf(at.f("kind"), "%s has no effect; only Services do", ref.KindText())
		case !isName(ref.Name):
			c.errorf(at.f("name"), "%q is not the name of a Service", ref.Name)
		default:
			out = append(out, model.BackendTarget{Host: model.ResolveHost(ref.Name, ref.Namespace, c.domain), Port: ref.Section})
		}
	}
	return out
}

// backendCAs takes whose certificates are believed in.
func (c *conv) backendCAs(at path, v *gatewayv1.BackendTLSPolicyValidation, out *model.BackendTLSPolicy) {
	known := ""
	if v.WellKnownCACertificates != nil {
		known = string(*v.WellKnownCACertificates)
	}
	switch {
	case known != "" && len(v.CACertificateRefs) > 0:
		c.errorf(at.f("wellKnownCACertificates"), "cannot be combined with caCertificateRefs; keep one of them")
	case known == string(gatewayv1.WellKnownCACertificatesSystem):
		out.System = true
	case known != "":
		c.warnf(at.f("wellKnownCACertificates"), "%q is not known, so that no connection is made; use %s", known, gatewayv1.WellKnownCACertificatesSystem)
	case len(v.CACertificateRefs) == 0:
		c.warnf(at.f("caCertificateRefs"), "is missing, so that no connection is made; name a ConfigMap with CAs, or use wellKnownCACertificates")
	}
	for i := range v.CACertificateRefs {
		ref, at := localRef(at.f("caCertificateRefs").i(i), c.meta.Namespace, &v.CACertificateRefs[i]), at.f("caCertificateRefs").i(i)
		switch {
		case !ref.IsConfigMap():
			c.warnf(at.f("kind"), "%s has no effect; only ConfigMaps do", ref.KindText())
		case !isName(ref.Name) || ref.Name == model.MeshConfigName:
			c.errorf(at.f("name"), "%q is not the name of a ConfigMap with CAs", ref.Name)
		default:
			out.CAs = append(out.CAs, model.Key{Kind: model.KindConfigMap, Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	if len(out.CAs) > 1 {
		c.warnf(at.f("caCertificateRefs"), "the first that can be used counts alone; write all CAs into one ConfigMap")
	}
}

// backendName is a name that certificates may have; a URI has its scheme in it.
func (c *conv) backendName(at path, n *gatewayv1.SubjectAltName) (string, bool) {
	switch n.Type {
	case gatewayv1.HostnameSubjectAltNameType:
		return strings.ToLower(string(n.Hostname)), c.checkHost(at.f("hostname"), string(n.Hostname), true)
	case gatewayv1.URISubjectAltNameType:
		if !strings.Contains(string(n.URI), "://") {
			c.errorf(at.f("uri"), "%q is not an absolute URI; write one such as spiffe://example.com/web", n.URI)
			return "", false
		}
		return string(n.URI), true
	}
	c.errorf(at.f("type"), "%q is not a type of names; use Hostname or URI", n.Type)
	return "", false
}

// salvageBackendTLS has nobody be believed where it cannot be read who is.
func salvageBackendTLS(spec map[string]any, _ [][]step) {
	if v := spec["validation"]; v == nil || isCut(v) {
		spec["validation"] = map[string]any{"hostname": "invalid"}
	}
}
