package gatewayapi

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// gatewayClasses are those of the Gateway API's Gateways that are ours, with the controllers' names.
var gatewayClasses = map[gatewayv1.ObjectName]string{"istio": ControllerIstio, "moonsail": ControllerMoonsail}

// Istio's options of listeners with TLS.
const (
	optionTerminate    = "gateway.istio.io/tls-terminate-mode" // a mode of a server of Istio's Gateway, or terminateMesh
	optionCipherSuites = "gateway.istio.io/tls-cipher-suites"  // separated by commas
	optionProtocol     = "gateway.istio.io/listener-protocol"  // autoPassthrough, of gateways between clusters
	autoPassthrough    = "auto-passthrough"
)

// Gateway decodes a Gateway of the Gateway API; nil for one of another controller.
func Gateway(in convert.Cluster, o *gatewayv1.Gateway) (*model.Gateway, problem.List) {
	c := start(in, model.KindKubernetesGateway, &o.ObjectMeta)
	at, spec := problem.Path("spec"), &o.Spec
	if gatewayClasses[spec.GatewayClassName] == "" {
		return nil, nil
	}
	if len(o.Name) > validation.LabelValueMaxLength {
		c.Errorf(code.InvalidName, problem.Path("metadata").Field("name"), "%q is too long for the label %s of its routers: use at most %d characters", o.Name, model.LabelGatewayName, validation.LabelValueMaxLength)
	}
	g := &model.Gateway{Meta: c.Meta, OwnNamespace: true, Deployed: Deployable(addressTypes(spec.Addresses)...), Selector: map[string]string{model.LabelGatewayName: o.Name}}
	if n := len(spec.Addresses); n > 1 || n == 1 && spec.Addresses[0].Type != nil && *spec.Addresses[0].Type == gatewayv1.NamedAddressType {
		c.Warnf(code.NoEffect, at.Field("addresses"), "no routers are deployed for a Gateway with them; run a router with the label %s: %s in this namespace", model.LabelGatewayName, o.Name)
	}
	if spec.DefaultScope != "" && spec.DefaultScope != gatewayv1.GatewayDefaultScopeNone {
		c.Warnf(code.NotSupported, at.Field("defaultScope"), "has no effect: routes name their Gateways in parentRefs")
	}
	refs := listenerRefs(o)
	c.gatewayTLS(g, refs)
	g.ListenerSets = refs.ListenerSets
	if s := g.ListenerSets; s != nil {
		c.checkSelection(at.Field("allowedListeners").Field("namespaces").Field("selector"), s.Namespace == "", s.Selector)
	}
	c.listeners(g, refs, spec.Listeners)
	return g, c.Problems
}

// addressTypes are the types of a Gateway's addresses; empty: the default.
func addressTypes(addresses []gatewayv1.GatewaySpecAddress) (types []string) {
	for _, a := range addresses {
		typ := gatewayv1.IPAddressType
		if a.Type != nil {
			typ = *a.Type
		}
		types = append(types, string(typ))
	}
	return types
}

// gatewayTLS takes how clients are verified, and the certificate for backends.
func (c *conv) gatewayTLS(g *model.Gateway, refs *GatewayRef) {
	for _, port := range slices.Sorted(maps.Keys(refs.Validations)) {
		v := refs.Validations[port]
		if g.ClientValidations == nil {
			g.ClientValidations = map[uint32]model.ClientValidation{}
		}
		g.ClientValidations[port] = model.ClientValidation{CAs: c.clientCAs(v.CAs), Insecure: v.Insecure, Required: v.Required}
	}
	ref := refs.ClientCertificate
	switch {
	case ref == nil:
	case !ref.IsSecret():
		c.Warnf(code.NoEffect, problem.Path(ref.Field), "%s has no effect; only Secrets do", ref.KindText())
	default:
		g.ClientCertificate = ref.Name
		if ref.Namespace != c.Meta.Namespace {
			g.ClientCertificate = model.CredentialURL(ref.Namespace + "/" + ref.Name)
		}
		c.ServerCredential(problem.Path(ref.Field).Field("name"), g.ClientCertificate)
	}
}

// clientCAs are the ConfigMaps with CAs of clients. The first usable one applies.
func (c *conv) clientCAs(refs []ObjectRef) []model.Key {
	var out []model.Key
	for i := range refs {
		ref := &refs[i]
		at := problem.Path(ref.Field)
		switch {
		case !ref.IsConfigMap():
			c.Warnf(code.NoEffect, at.Field("kind"), "%s has no effect; only ConfigMaps do", ref.KindText())
		case !convert.IsName(ref.Name) || ref.Name == model.MeshConfigName:
			c.Errorf(code.InvalidName, at.Field("name"), "%q is not the name of a ConfigMap with CAs", ref.Name)
		default:
			out = append(out, model.Key{Kind: model.KindConfigMap, Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	if len(out) > 1 {
		c.Warnf(code.NotAllowedHere, problem.Path(refs[0].Field), "only the first valid ConfigMap has an effect; write all CAs into one")
	}
	return out
}

// listeners adds the listeners of a Gateway or ListenerSet.
func (c *conv) listeners(g *model.Gateway, refs *GatewayRef, list []gatewayv1.Listener) {
	conflicts := refs.Conflicts()
	for i := range list {
		at := problem.Path("spec.listeners").Index(i)
		server, ok := c.listener(at, &list[i], &refs.Listeners[i])
		switch {
		case conflicts[i].Reason != "":
			c.Warnf(code.NoEffect, at, "has no effect: %s; change its port or hostname", conflicts[i].Text)
		case ok:
			c.checkClients(at, refs, &refs.Listeners[i])
			g.Servers = append(g.Servers, server)
		case server.Port.Protocol != "":
			g.Reserved = append(g.Reserved, *refs.Listeners[i].Server(c.Meta.Namespace))
		}
	}
}

// listener returns false for a listener that cannot be served.
func (c *conv) listener(at problem.Path, l *gatewayv1.Listener, ref *ListenerRef) (model.GatewayServer, bool) {
	out := *ref.Server(c.Meta.Namespace)
	c.CheckPort(at.Field("port"), out.Port.Number)
	if len(validation.IsDNS1123Subdomain(string(l.Name))) > 0 {
		c.Errorf(code.InvalidName, at.Field("name"), "%q cannot be a listener's name: use lower-case letters, digits, '-' and '.'", l.Name)
	}
	if upper := gatewayv1.ProtocolType(strings.ToUpper(string(l.Protocol))); out.Port.Protocol == "" && protocols[upper] != "" {
		p := c.Warnf(code.UnknownValue, at.Field("protocol"), "%q is not a protocol, so the listener has no effect; did you mean %q?", l.Protocol, upper)
		p.Set(string(upper))
		p.RequestsFail()
		return out, false
	}
	if out.Port.Protocol == "" {
		c.Warnf(code.NotSupported, at.Field("protocol"), "%s has no effect in Moonsail yet; use HTTP, HTTPS, TLS or TCP", l.Protocol)
		return out, false
	}
	encrypted := out.TLS != nil
	switch {
	case encrypted && !ref.Passes():
		out.TLS = c.listenerTLS(at.Field("tls"), l.TLS, ref, out.TLS)
	case encrypted && l.TLS != nil:
		c.passingOptions(at.Field("tls").Field("options"), l.TLS.Options)
	}
	c.checkKinds(ref)
	if l.Hostname != nil && *l.Hostname != "" {
		c.CheckHost(at.Field("hostname"), string(*l.Hostname), true)
	}
	c.checkSelection(at.Field("allowedRoutes").Field("namespaces").Field("selector"), ref.From == string(gatewayv1.NamespacesFromSelector), ref.Namespaces)
	return out, encrypted == (out.TLS != nil)
}

// checkClients warns of a listener that would not require certificates of clients where the Gateway does.
func (c *conv) checkClients(at problem.Path, g *GatewayRef, l *ListenerRef) {
	if v, required := g.ValidationAt(l); required && !v.Insecure && l.Terminate == string(model.ServerOptionalMutual) {
		c.Warnf(code.NoEffect, at.Field("tls").Field("options").Key(optionTerminate),
			"%s has no effect, because spec.tls.frontend requires certificates of clients; add an entry without validation to perPort there", l.Terminate)
	}
}

// checkKinds warns of kinds of routes that a listener cannot take.
func (c *conv) checkKinds(l *ListenerRef) {
	_, wrong := l.Routes()
	for i := range wrong {
		c.Warnf(code.NoEffect, problem.Path(wrong[i].Field), "%s: not a kind of route for listeners of protocol %s", wrong[i].KindText(), l.Protocol)
	}
}

// checkSelection checks the selector of namespaces whose routes a listener takes, or whose ListenerSets a Gateway takes.
// selected: the selector counts.
func (c *conv) checkSelection(at problem.Path, selected bool, s *model.LabelSelector) {
	switch {
	case !selected:
		return
	case s == nil:
		c.Warnf(code.MissingField, at, "is missing, so no namespace is selected; select namespaces, or use Same or All")
		return
	}
	c.Labels(at.Field("matchLabels"), s.Labels)
	for i := range s.Expressions {
		c.LabelExpression(at.Field("matchExpressions").Index(i), &s.Expressions[i])
	}
}

// listenerTLS completes out. It returns nil for a listener that cannot be served.
func (c *conv) listenerTLS(at problem.Path, tls *gatewayv1.ListenerTLSConfig, l *ListenerRef, out *model.ServerTLS) *model.ServerTLS {
	if trouble := l.Trouble(); trouble.Text != "" {
		c.Warnf(trouble.code, at.Join(trouble.Field), "%s; the listener has no effect", trouble.Text).RequestsFail()
		return nil
	}
	c.listenerOptions(at.Field("options"), tls.Options, out)
	if l.NeedsSecret() && !c.listenerCertificates(at, l, out) {
		return nil
	}
	return out
}

// listenerOptions honours Istio's options, and warns of others.
func (c *conv) listenerOptions(at problem.Path, options map[gatewayv1.AnnotationKey]gatewayv1.AnnotationValue, out *model.ServerTLS) {
	for _, name := range slices.Sorted(maps.Keys(options)) {
		switch name {
		case optionTerminate:
		case optionCipherSuites:
			var list []string
			for suite := range strings.SplitSeq(string(options[name]), ",") {
				list = append(list, strings.TrimSpace(suite))
			}
			out.CipherSuites = c.CipherSuites(at.Key(string(name)), list)
		default:
			c.Warnf(code.NoEffect, at.Key(string(name)), "has no effect; the options that have are %s and %s", optionTerminate, optionCipherSuites)
		}
	}
}

// passingOptions warns of all options of a listener that passes connections on: none has an effect.
func (c *conv) passingOptions(at problem.Path, options map[gatewayv1.AnnotationKey]gatewayv1.AnnotationValue) {
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if name == optionProtocol && options[name] == autoPassthrough {
			c.Warnf(code.NotSupported, at.Key(string(name)), "%s has no effect: the mesh has one cluster, so the listener serves only hosts of TLSRoutes; remove it", autoPassthrough)
			continue
		}
		c.Warnf(code.NoEffect, at.Key(string(name)), "has no effect: the listener does not end TLS; remove it")
	}
}

// listenerCertificates fills in the Secrets; false: there is none.
func (c *conv) listenerCertificates(at problem.Path, l *ListenerRef, out *model.ServerTLS) bool {
	for i := range l.Certificates {
		ref := &l.Certificates[i]
		at := problem.Path(ref.Field)
		if !ref.IsSecret() {
			c.Warnf(code.NoEffect, at, "only Secrets have an effect")
			continue
		}
		name := ref.Name
		if ref.Namespace != c.Routers || ref.Namespace != c.Meta.Namespace { // may need a ReferenceGrant
			name = model.CredentialURL(ref.Namespace + "/" + name)
		}
		c.ServerCredential(at.Field("name"), name)
		out.CredentialNames = append(out.CredentialNames, name)
	}
	if len(out.CredentialNames) == 0 {
		c.Warnf(code.MissingField, at.Field("certificateRefs"), "has no Secret, so the listener has no effect; name one").RequestsFail()
		return false
	}
	return true
}

// ReferenceGrant decodes a ReferenceGrant.
func ReferenceGrant(in convert.Cluster, o *gatewayv1.ReferenceGrant) (*model.ReferenceGrant, problem.List) {
	c := start(in, model.KindReferenceGrant, &o.ObjectMeta)
	out := &model.ReferenceGrant{Meta: c.Meta}
	for _, f := range o.Spec.From {
		if f.Group == Group {
			out.From = append(out.From, model.GrantFrom{Kind: string(f.Kind), Namespace: string(f.Namespace)})
		}
	}
	for _, t := range o.Spec.To {
		to := model.GrantTo{Kind: string(t.Kind)}
		if t.Name != nil {
			to.Name = string(*t.Name)
		}
		if t.Group == "" {
			out.To = append(out.To, to)
		}
	}
	return out, c.Problems
}
