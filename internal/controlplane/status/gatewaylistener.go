package status

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/model"
)

// gatewayConditions is the status of a Gateway without its conditions.
type gatewayConditions struct {
	addresses []string
	listeners []listenerConditions
	sets      *int // how many ListenerSets are attached to a Gateway; nil: it is a ListenerSet
}

type listenerConditions struct {
	name       string
	kinds      []model.Kind
	attached   int
	conditions []condition
}

// gateway judges a Gateway, after its routes have been counted.
func (w *gatewayWorld) gateway(k model.Key, o gatewayObject) *judgement {
	out := &judgement{generation: o.generation, gateway: &gatewayConditions{}}
	routers, served, bad := w.routers[types.NamespacedName{Namespace: k.Namespace, Name: k.Name}], 0, []string(nil)
	conflicts := o.Gateway.Conflicts()
	for i := range o.Gateway.Listeners {
		l := w.listener(k, o.Gateway, &o.Gateway.Listeners[i], conflicts[i], len(routers) > 0 && !o.problems.HasErrors())
		out.gateway.listeners = append(out.gateway.listeners, l)
		if l.conditions[0].ok {
			served++
		} else {
			bad = append(bad, l.name)
		}
	}
	taken := accepted(o, "Invalid")
	if taken.ok && len(bad) > 0 {
		taken.ok, taken.reason = served > 0, "ListenersNotValid"
		taken.message = shorten([]string{fmt.Sprintf("listeners without effect: %v", bad), taken.message})
	}
	addresses, pending := w.addresses(k, routers, o.deployment)
	works := programmed(k, taken.ok, len(routers), pending, o.deployment)
	if d := o.deployment; d != nil && d.Parameters != "" { // routers that exist stay
		taken.ok, taken.reason, taken.message = false, "InvalidParameters", shorten([]string{d.Parameters})
	}
	out.conditions = []condition{taken, works}
	out.conditions = append(out.conditions, w.gatewayTLS(k, o.Gateway)...)
	out.gateway.addresses = addresses
	return out
}

// programmed returns the condition of that type. pending is why the Gateway has no address yet. deployment is nil if others run the
// routers.
func programmed(k model.Key, ok bool, routers int, pending string, deployment *Deployment) condition {
	if !ok {
		return condition{typeProgrammed, false, "Invalid", "not accepted"}
	}
	if trouble, is := deployment.troubled(); is {
		return trouble
	}
	switch {
	case routers == 0 && deployment == nil:
		return condition{typeProgrammed, false, "NoResources", fmt.Sprintf(
			"no Pod or WorkloadEntry of this namespace has the label %s: %s: run a router with it", model.LabelGatewayName, k.Name)}
	case pending != "":
		return condition{typeProgrammed, false, "AddressNotAssigned", pending}
	case routers == 0:
		return condition{typeProgrammed, false, "Pending", fmt.Sprintf("Deployment %s: it has no Pod yet", deployment.Name)}
	}
	return condition{typeProgrammed, true, "Programmed", deployment.remark()}
}

// listener judges a listener of a Gateway, or of a ListenerSet with the key k. Its first condition is Accepted.
func (w *gatewayWorld) listener(k model.Key, g *gatewayapi.GatewayRef, l *gatewayapi.ListenerRef, with model.ServerConflict, running bool) listenerConditions {
	kinds, wrong := l.Routes()
	refs := &complaints{}
	for _, ref := range wrong {
		refs.add(invalidRouteKinds, ref.Field, "%s: not a kind of route for listeners of protocol %s", ref.KindText(), l.Protocol)
	}
	w.certificates(k, l, refs)
	taken := acceptedListener(l)
	if verified := w.clientCAs(k, g, l, refs); taken.ok && !verified.ok {
		taken = verified
	}
	resolved := refs.resolved()
	conflict := conflicted(with)
	out := listenerConditions{name: l.Name, kinds: kinds, attached: w.attached[listenerOf(k, l.Name)]}
	works := condition{typeProgrammed, true, "Programmed", ""}
	switch {
	case !taken.ok || !resolved.ok || conflict.ok:
		works = condition{typeProgrammed, false, "Invalid", "see the other conditions"}
	case !running:
		works = condition{typeProgrammed, false, "Pending", "no router serves it: see the conditions of the Gateway"}
	}
	if conflict.ok && taken.ok {
		taken = condition{typeAccepted, false, "PortUnavailable", conflict.message}
	}
	if conflict.ok && k.Kind == model.KindListenerSet { // the Gateway API's reasons for entries of ListenerSets
		taken.reason, works.reason, works.message = conflict.reason, conflict.reason, conflict.message
	}
	out.conditions = []condition{taken, resolved, works, conflict}
	return out
}

func acceptedListener(l *gatewayapi.ListenerRef) condition {
	if len(l.Possible()) == 0 {
		return condition{typeAccepted, false, "UnsupportedProtocol", fmt.Sprintf("protocol %s: not supported by Moonsail", l.Protocol)}
	}
	if t := l.Trouble(); t.Text != "" {
		return condition{typeAccepted, false, unsupportedValue, fmt.Sprintf("tls.%s: %s", t.Field, t.Text)}
	}
	return condition{typeAccepted, true, "Accepted", ""}
}

// certificates reports missing and unusable certificates.
func (w *gatewayWorld) certificates(k model.Key, l *gatewayapi.ListenerRef, wrong *complaints) {
	if !l.NeedsSecret() {
		return
	}
	const invalid = "InvalidCertificateRef"
	from := (&model.Gateway{Meta: model.Meta{Key: k}}).GrantFrom()
	if len(l.Certificates) == 0 {
		wrong.add(invalid, "tls.certificateRefs", "empty: name a Secret")
	}
	for i := range l.Certificates {
		ref := &l.Certificates[i]
		secret, _ := w.snap.Get(model.Key{Kind: model.KindSecret, Namespace: ref.Namespace, Name: ref.Name}).(*model.Secret)
		switch {
		case !ref.IsSecret():
			wrong.add(invalid, ref.Field, "%s: use a Secret", ref.KindText())
		case !w.granted(from, ref):
			wrong.add("RefNotPermitted", ref.Field, "not permitted: add a ReferenceGrant to namespace %s for %ss of %s", ref.Namespace, from.Kind, k.Namespace)
		case secret != nil && secret.Problem != "": // nil: not read yet
			wrong.add(invalid, ref.Field, "Secret %s: cannot be used: %s", ref.Name, secret.Problem)
		}
	}
}

// conflicted returns the condition of that type.
func conflicted(c model.ServerConflict) condition {
	if c.Reason == "" {
		return condition{typeConflicted, false, "NoConflicts", ""}
	}
	return condition{typeConflicted, true, string(c.Reason), c.Text}
}

// leadsTo reports whether a Service is for the routers of a Gateway. Without routers, the label of the Service or of its selector
// decides: otherwise a restart of the only router would remove the Gateway's addresses from DNS.
func leadsTo(s *model.Service, gateway string, routers []*model.Workload) bool {
	if len(routers) == 0 {
		return s.Selector[model.LabelGatewayName] == gateway || s.Labels[model.LabelGatewayName] == gateway
	}
	return slices.ContainsFunc(routers, func(r *model.Workload) bool { return model.SelectorMatches(s.Selector, r.Labels) })
}

// addresses returns those of the routers' Services, and of the one of the deployment: of load balancers and externalIPs, or else
// their names in the cluster. If a load balancer has none and no other one has, there is none, and pending is why.
func (w *gatewayWorld) addresses(k model.Key, routers []*model.Workload, deployment *Deployment) (list []string, pending string) {
	var outside, inside []string
	balancer := "" // the first Service with a load balancer
	for _, s := range w.services[k.Namespace] {
		deployed := deployment != nil && s.Name == deployment.Name
		if !deployed && !leadsTo(s, k.Name, routers) {
			continue
		}
		outside, inside = append(outside, s.Outside...), append(inside, string(s.Hostname))
		if s.Balanced && (balancer == "" || s.Name < balancer) {
			balancer = s.Name
		}
	}
	switch {
	case len(outside) > 0:
		inside = outside
	case balancer != "":
		return nil, fmt.Sprintf("Service %s: its load balancer has no address yet", balancer)
	case deployment != nil && len(inside) == 0:
		return nil, fmt.Sprintf("Service %s: it does not exist yet", deployment.Name)
	}
	slices.Sort(inside)
	inside = slices.Compact(inside)
	return inside[:min(len(inside), maxAddresses)], ""
}

// maxAddresses is the limit of the API.
const maxAddresses = 16

func addressType(address string) string {
	if _, err := netip.ParseAddr(address); err == nil {
		return "IPAddress"
	}
	return "Hostname"
}
