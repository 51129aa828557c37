package gatewayapi

import (
	"maps"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// BackendTLSPolicy decodes a BackendTLSPolicy. Missing CAs are not an error: the policy is in force, as the Gateway
// API requires, and connections fail instead of using plaintext. An ignored policy has no targets.
func BackendTLSPolicy(in convert.Cluster, o *gatewayv1.BackendTLSPolicy) (*model.BackendTLSPolicy, problem.List) {
	c := start(in, model.KindBackendTLSPolicy, &o.ObjectMeta)
	if isIgnored(&o.ObjectMeta) {
		return &model.BackendTLSPolicy{Meta: c.Meta}, c.Problems
	}
	at, v := problem.Path("spec.validation"), &o.Spec.Validation
	out := &model.BackendTLSPolicy{Meta: c.Meta, SNI: strings.ToLower(string(v.Hostname))}
	out.Targets = c.backendTargets(problem.Path("spec.targetRefs"), o.Spec.TargetRefs)
	if v.Hostname == "" {
		c.Errorf(code.MissingField, at.Field("hostname"), "is missing; set the name that is sent as SNI and that the servers' certificates have")
	} else {
		c.CheckHost(at.Field("hostname"), string(v.Hostname), false)
	}
	c.backendCAs(at, v, out)
	for i := range v.SubjectAltNames {
		if name, ok := c.backendName(at.Field("subjectAltNames").Index(i), &v.SubjectAltNames[i]); ok {
			out.SubjectAltNames = append(out.SubjectAltNames, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Spec.Options)) {
		c.Warnf(code.NoEffect, problem.Path("spec.options").Key(string(name)), "has no effect")
	}
	return out, c.Problems
}

func (c *conv) backendTargets(at problem.Path, list []gatewayv1.LocalPolicyTargetReferenceWithSectionName) []model.BackendTarget {
	if len(list) == 0 {
		c.Errorf(code.MissingField, at, "is missing; name a Service or ServiceEntry")
	}
	var out []model.BackendTarget
	for i := range list {
		ref, at := policyTarget(at.Index(i), c.Meta.Namespace, &list[i]), at.Index(i)
		switch {
		case !ref.IsOfMesh():
			c.Warnf(code.NoEffect, at.Field("kind"), "%s has no effect; only Services and ServiceEntries do", ref.KindText())
		case !convert.IsName(ref.Name):
			c.Errorf(code.InvalidName, at.Field("name"), "%q is not the name of a %s", ref.Name, ref.Kind)
		case ref.IsServiceEntry():
			out = append(out, model.BackendTarget{Entry: ref.Name, Port: ref.Section})
		default:
			out = append(out, model.BackendTarget{Host: model.ResolveHost(ref.Name, ref.Namespace, c.Domain), Port: ref.Section})
		}
	}
	return out
}

// backendCAs takes whose certificates are believed in.
func (c *conv) backendCAs(at problem.Path, v *gatewayv1.BackendTLSPolicyValidation, out *model.BackendTLSPolicy) {
	known := ""
	if v.WellKnownCACertificates != nil {
		known = string(*v.WellKnownCACertificates)
	}
	switch {
	case known != "" && len(v.CACertificateRefs) > 0:
		c.Errorf(code.ExclusiveFields, at.Field("wellKnownCACertificates"), "cannot be combined with caCertificateRefs; keep one of them")
	case known == string(gatewayv1.WellKnownCACertificatesSystem):
		out.System = true
	case known != "":
		c.Warnf(code.UnknownValue, at.Field("wellKnownCACertificates"), "%q is not known, so that no connection is made; use %s", known, gatewayv1.WellKnownCACertificatesSystem)
	case len(v.CACertificateRefs) == 0:
		c.Warnf(code.MissingField, at.Field("caCertificateRefs"), "is missing, so that no connection is made; name a ConfigMap with CAs, or use wellKnownCACertificates")
	}
	for i := range v.CACertificateRefs {
		ref, at := localRef(at.Field("caCertificateRefs").Index(i), c.Meta.Namespace, &v.CACertificateRefs[i]), at.Field("caCertificateRefs").Index(i)
		switch {
		case !ref.IsConfigMap():
			c.Warnf(code.NoEffect, at.Field("kind"), "%s has no effect; only ConfigMaps do", ref.KindText())
		case !convert.IsName(ref.Name) || ref.Name == model.MeshConfigName:
			c.Errorf(code.InvalidName, at.Field("name"), "%q is not the name of a ConfigMap with CAs", ref.Name)
		default:
			out.CAs = append(out.CAs, model.Key{Kind: model.KindConfigMap, Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	if len(out.CAs) > 1 {
		c.Warnf(code.NotAllowedHere, at.Field("caCertificateRefs"), "only the first valid one has an effect; write all CAs into one ConfigMap")
	}
}

// backendName is a name that certificates may have; a URI has its scheme in it.
func (c *conv) backendName(at problem.Path, n *gatewayv1.SubjectAltName) (string, bool) {
	switch n.Type {
	case gatewayv1.HostnameSubjectAltNameType:
		return strings.ToLower(string(n.Hostname)), c.CheckHost(at.Field("hostname"), string(n.Hostname), true)
	case gatewayv1.URISubjectAltNameType:
		if !strings.Contains(string(n.URI), "://") {
			c.Errorf(code.InvalidFormat, at.Field("uri"), "%q is not an absolute URI; write one such as spiffe://example.com/web", n.URI)
			return "", false
		}
		return string(n.URI), true
	}
	c.Errorf(code.UnknownValue, at.Field("type"), "%q is not a type of names; use Hostname or URI", n.Type)
	return "", false
}
