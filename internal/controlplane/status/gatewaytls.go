package status

import (
	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/model"
)

// clientCAs reports CAs that cannot verify clients of a listener. The Gateway g refers to them, also for listeners of its
// ListenerSets. The condition Accepted is False if no CA is usable.
func (w *gatewayWorld) clientCAs(k model.Key, g *gatewayapi.GatewayRef, l *gatewayapi.ListenerRef, wrong *complaints) condition {
	out := condition{kind: typeAccepted, ok: true}
	v, required := g.ValidationAt(l)
	if !required {
		return out
	}
	of, good := gatewayOf(k, w.objects[k].Gateway), 0
	for i := range v.CAs {
		ref := &v.CAs[i]
		found, _ := w.snap.Get(model.Key{Kind: model.KindConfigMap, Namespace: ref.Namespace, Name: ref.Name}).(*model.Secret)
		switch {
		case !ref.IsConfigMap():
			wrong.add("InvalidCACertificateKind", ref.Field, "%s: use a ConfigMap", ref.KindText())
		case !w.granted(model.GrantFrom{Kind: "Gateway", Namespace: of.Namespace}, ref):
			wrong.add("RefNotPermitted", ref.Field, "not permitted: add a ReferenceGrant to namespace %s for Gateways of %s", ref.Namespace, of.Namespace)
		case found != nil && found.CAProblem != "": // nil: not read yet
			wrong.add("InvalidCACertificateRef", ref.Field, "ConfigMap %s: cannot be used: %s", ref.Name, found.CAProblem)
		default:
			good++
		}
	}
	if good == 0 {
		out.ok, out.reason, out.message = false, "NoValidCACertificate", "no CA can verify clients: see ResolvedRefs"
	}
	return out
}

// gatewayOf returns the Gateway of a listener's owner.
func gatewayOf(k model.Key, g *gatewayapi.GatewayRef) model.Key {
	if k.Kind == model.KindListenerSet {
		return g.Parent
	}
	return k
}

// gatewayTLS returns the conditions about spec.tls of a Gateway that exist only with it.
func (w *gatewayWorld) gatewayTLS(k model.Key, g *gatewayapi.GatewayRef) []condition {
	var out []condition
	for _, v := range g.Validations {
		if v.Insecure {
			out = append(out, condition{typeInsecureFrontend, true, "ConfigurationChanged", "clients without a valid certificate are accepted: mode AllowInsecureFallback"})
			break
		}
	}
	ref := g.ClientCertificate
	if ref == nil {
		return out
	}
	wrong := &complaints{}
	secret, _ := w.snap.Get(model.Key{Kind: model.KindSecret, Namespace: ref.Namespace, Name: ref.Name}).(*model.Secret)
	switch {
	case !ref.IsSecret():
		wrong.add(invalidClientCertificate, ref.Field, "%s: use a Secret", ref.KindText())
	case !w.granted(model.GrantFrom{Kind: "Gateway", Namespace: k.Namespace}, ref):
		wrong.add("RefNotPermitted", ref.Field, "not permitted: add a ReferenceGrant to namespace %s for Gateways of %s", ref.Namespace, k.Namespace)
	case secret != nil && secret.Problem != "": // nil: not read yet
		wrong.add(invalidClientCertificate, ref.Field, "Secret %s: cannot be used: %s", ref.Name, secret.Problem)
	}
	return append(out, wrong.resolved())
}

// invalidClientCertificate is the reason of a certificate for backends that cannot be used.
const invalidClientCertificate = "InvalidClientCertificateRef"
