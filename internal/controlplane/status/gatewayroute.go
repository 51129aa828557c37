package status

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/model"
)

// routeConditions is the status of a route for its parents, or of a policy for its ancestors.
type routeConditions struct{ parents []parentConditions }

type parentConditions struct {
	ref        *gatewayapi.ParentRef
	controller string
	conditions []condition
}

// route judges a route for each parent of ours, and counts it for the listeners that take it.
func (w *gatewayWorld) route(k model.Key, o gatewayObject) *routeConditions {
	out := &routeConditions{}
	resolved := w.backends(k, o.Route)
	attached := map[listenerKey]bool{} // several parents may name one listener, which counts the route once
	for i := range o.Route.Parents {
		p := &o.Route.Parents[i]
		controller, taken := w.parent(k, o, p, attached)
		if controller != "" {
			out.parents = append(out.parents, parentConditions{p, controller, o.partly([]condition{taken, resolved})})
		}
	}
	for l := range attached {
		w.attached[l]++
	}
	return out
}

// partly adds the condition of a route that is accepted in part. The Gateway API defines the prefix.
func (o *gatewayObject) partly(list []condition) []condition {
	if !o.partial || !list[0].ok {
		return list
	}
	return append(list, condition{typePartiallyInvalid, true, "UnsupportedValue", "Dropped Rule: " + problemText(o.problems)})
}

// parent judges a route for one of its parents, and adds its listeners. The controller is empty for a
// parent of another controller.
func (w *gatewayWorld) parent(k model.Key, o gatewayObject, p *gatewayapi.ParentRef, attached map[listenerKey]bool) (string, condition) {
	taken := accepted(o, "UnsupportedValue")
	if p.IsService() {
		return w.serviceParent(k, o, p, taken)
	}
	parent := p.Key()
	of := w.objects[parent].Refs
	if !p.IsListener() || of == nil || of.Gateway == nil {
		return "", taken
	}
	gateway := parent
	if parent.Kind == model.KindListenerSet {
		gateway = of.Gateway.Parent
		if w.objects[gateway].Refs == nil || w.objects[gateway].Gateway == nil {
			return "", taken
		}
	}
	controller := w.objects[gateway].Gateway.Controller
	if gateway != parent && !slices.Contains(w.sets[gateway], parent) {
		return controller, condition{typeAccepted, false, model.NoMatchingParent.String(), "the ListenerSet is not accepted: see its status"}
	}
	listeners, reason := w.attach(k, o.Route, p, of.Gateway)
	if reason != model.Attached {
		return controller, condition{typeAccepted, false, reason.String(), reason.Advice(p.Kind, k)}
	}
	if !taken.ok {
		return controller, taken
	}
	for _, l := range listeners {
		attached[listenerOf(parent, l)] = true
	}
	w.reach(k, o.Route, gateway)
	return controller, taken
}

// serviceParent judges a route for a Service, which is for sidecars of the mesh.
func (w *gatewayWorld) serviceParent(k model.Key, o gatewayObject, p *gatewayapi.ParentRef, taken condition) (string, condition) {
	reason, message, s := "", "", w.service(&p.ObjectRef)
	switch {
	case k.Kind == model.KindTLSRoute || k.Kind == model.KindTCPRoute:
		reason, message = "UnsupportedValue", fmt.Sprintf("%ss for Services: not supported by Moonsail", k.Kind)
	case p.Namespace != k.Namespace:
		reason, message = "UnsupportedValue", "routes for Services of another namespace: not supported by Moonsail"
	case slices.ContainsFunc(o.Route.Parents, func(p gatewayapi.ParentRef) bool { return p.IsListener() }):
		reason, message = "UnsupportedValue", "no effect in a route that also has a Gateway: add a separate route for the Service"
	case s == nil:
		reason, message = "NoMatchingParent", "Service: not found"
	case p.Port != 0:
		reason, message = "UnsupportedValue", "port: not supported by Moonsail: the route is for all ports of the Service"
	case taken.ok && w.effective[s.Hostname] != nil && w.effective[s.Hostname].Key != k:
		reason, message = "UnsupportedValue", fmt.Sprintf("no effect: the older %s is for the same Service", w.effective[s.Hostname].Key)
	}
	if reason != "" {
		taken = condition{typeAccepted, false, reason, message}
	}
	return gatewayapi.ControllerMesh, taken
}

// attach returns the listeners of a Gateway or ListenerSet that take a route; if none does, the reason of the one that came closest.
func (w *gatewayWorld) attach(k model.Key, r *gatewayapi.RouteRef, p *gatewayapi.ParentRef, g *gatewayapi.GatewayRef) (listeners []string, reason model.AttachReason) {
	route := &model.VirtualService{Meta: model.Meta{Key: k}, Gateways: []string{p.GatewayName()}, Hosts: r.Hostnames}
	takes, reason := g.AsGateway(p.Key()).AttachAny(route, func(s *model.LabelSelector) bool { return s.Matches(w.snap.NamespaceLabels(k.Namespace)) })
	for _, server := range takes {
		listeners = append(listeners, server.Port.Name)
	}
	return listeners, reason
}

// backends reports whether all backends of a route exist.
func (w *gatewayWorld) backends(k model.Key, r *gatewayapi.RouteRef) condition {
	wrong := &complaints{}
	for i := range r.Backends {
		ref := &r.Backends[i]
		switch s := w.service(ref); {
		case ref.IsHostname():
			w.hostname(ref, wrong)
		case !ref.IsService():
			wrong.add("InvalidKind", ref.Field, "%s: use a Service", ref.KindText())
		case !w.granted(model.GrantFrom{Kind: string(k.Kind), Namespace: k.Namespace}, ref):
			wrong.add("RefNotPermitted", ref.Field, "not permitted: add a ReferenceGrant to namespace %s for %ss of %s", ref.Namespace, k.Kind, k.Namespace)
		case s == nil:
			wrong.add("BackendNotFound", ref.Field, "Service %s: not found in namespace %s", ref.Name, ref.Namespace)
		case s.ExternalName == "" && s.Port(ref.Port) == nil:
			wrong.add("BackendNotFound", ref.Field, "Service %s: no port %d", ref.Name, ref.Port)
		}
	}
	return wrong.resolved()
}

// hostname reports a host that the mesh does not have.
func (w *gatewayWorld) hostname(ref *gatewayapi.ObjectRef, wrong *complaints) {
	host, ports := model.Host(strings.ToLower(ref.Name)), []*model.Service(nil)
	for o := range w.snap.All(model.KindServiceEntry) {
		if e, ok := o.(*model.ServiceEntry); ok && slices.ContainsFunc(e.Hosts, func(h model.Host) bool { return h.Matches(host) }) {
			ports = append(ports, &e.Template)
		}
	}
	for o := range w.snap.All(model.KindService) {
		if s, ok := o.(*model.Service); ok && s.Hostname == host {
			ports = append(ports, s)
		}
	}
	switch {
	case len(ports) == 0:
		wrong.add("BackendNotFound", ref.Field, "host %s: no Service or ServiceEntry", host)
	case !slices.ContainsFunc(ports, func(s *model.Service) bool { return s.Port(ref.Port) != nil }):
		wrong.add("BackendNotFound", ref.Field, "host %s: no port %d", host, ref.Port)
	}
}
