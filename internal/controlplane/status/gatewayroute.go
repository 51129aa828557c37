package status

import (
	"fmt"
	"slices"

	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/model"
)

// routeConditions is the status of a route for its parents, or of a policy for its ancestors.
type routeConditions struct {
	parents   []parentConditions
	fallsBack bool // the last valid version serves
}

type parentConditions struct {
	ref        *gatewayapi.ParentRef
	controller string
	conditions []condition
}

// route judges a route for each parent of ours, and counts it for the listeners that take it.
func (w *gatewayWorld) route(k model.Key, o gatewayObject) *routeConditions {
	out := &routeConditions{fallsBack: o.fallsBack()}
	atGateway, inMesh := w.backends(k, o.Route, true), w.backends(k, o.Route, false)
	attached := map[listenerKey]bool{} // several parents may name one listener, which counts the route once
	for i := range o.Route.Parents {
		p := &o.Route.Parents[i]
		controller, taken := w.parent(k, o, p, attached)
		resolved := atGateway
		if p.IsOfMesh() {
			resolved = inMesh
		}
		if controller != "" {
			out.parents = append(out.parents, parentConditions{p, controller, o.partly([]condition{taken, resolved})})
		}
	}
	for l := range attached {
		w.attached[l]++
	}
	return out
}

// partly adds the condition of a route that is accepted in part, or in an earlier version. The Gateway API defines the prefixes.
func (o *gatewayObject) partly(list []condition) []condition {
	prefix := "Dropped Rule: "
	switch {
	case !list[0].ok:
		return list
	case o.fallsBack():
		prefix = "Fall Back: the last valid version serves: "
	case !o.partial:
		return list
	}
	return append(list, condition{typePartiallyInvalid, true, unsupportedValue, prefix + problemText(o.problems)})
}

// unsupportedValue is the reason of errors in an object.
const unsupportedValue = "UnsupportedValue"

// parent judges a route for one of its parents, and adds its listeners. The controller is empty for a
// parent of another controller. If the last valid version of the route serves, only parents where that version is attached
// accept it.
func (w *gatewayWorld) parent(k model.Key, o gatewayObject, p *gatewayapi.ParentRef, attached map[listenerKey]bool) (string, condition) {
	taken := accepted(o, unsupportedValue)
	if p.IsOfMesh() {
		if o.fallsBack() && !w.servesInMesh(k, p) {
			taken.ok, taken.reason = false, unsupportedValue
		}
		return gatewayapi.ControllerMesh, w.meshParent(k, p, taken)
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
	if o.fallsBack() {
		served, _ := w.attachVersion(w.serving(k), p, of.Gateway)
		listeners = slices.DeleteFunc(listeners, func(l string) bool { return !slices.Contains(served, l) })
		if len(listeners) == 0 {
			taken.ok, taken.reason = false, unsupportedValue
		}
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

// meshParent judges a route for a Service or ServiceEntry, which is for sidecars of the mesh.
func (w *gatewayWorld) meshParent(k model.Key, p *gatewayapi.ParentRef, taken condition) condition {
	reason, message := "", ""
	hosts, port := w.parentHosts(p)
	switch {
	case len(hosts) == 0:
		reason, message = model.NoMatchingParent.String(), fmt.Sprintf("%s: not found", p.Kind)
	case !port:
		reason, message = model.NoMatchingParent.String(), fmt.Sprintf("%s: no port %d", p.Kind, p.Port)
	case taken.ok && k.Kind == model.KindTCPRoute:
		if older := w.olderStream(k, hosts, p.Port); older != nil {
			reason, message = unsupportedValue, fmt.Sprintf("no effect: the older %s is for the same %s", older.Key, p.Kind)
		}
	}
	if reason != "" {
		return condition{typeAccepted, false, reason, message}
	}
	return taken
}

// parentHosts are the hosts of a Service or ServiceEntry; none: it does not exist. port reports whether it has the port that
// the parent names, if any.
func (w *gatewayWorld) parentHosts(p *gatewayapi.ParentRef) (hosts []model.Host, port bool) {
	if p.IsService() {
		s := w.service(&p.ObjectRef)
		if s == nil {
			return nil, false
		}
		return []model.Host{s.Hostname}, p.Port == 0 || s.Port(p.Port) != nil
	}
	e, ok := w.snap.Get(p.Key()).(*model.ServiceEntry)
	if !ok {
		return nil, false
	}
	return e.Hosts, p.Port == 0 || e.Template.Port(p.Port) != nil
}

// olderStream returns an older TCPRoute of the namespace that takes all connections to the hosts and port; nil: there is
// none.
func (w *gatewayWorld) olderStream(k model.Key, hosts []model.Host, port uint32) *model.VirtualService {
	own, _ := w.snap.Get(k).(*model.VirtualService)
	for _, o := range w.streams {
		takes := func(h model.Host) bool { return o.ForPort(h, 0) || port != 0 && o.ForPort(h, port) }
		if own != nil && o.Key != k && o.Namespace == k.Namespace && model.Older(o, own) && slices.ContainsFunc(hosts, takes) {
			return o
		}
	}
	return nil
}

// serving is the version of a route that serves; empty: none does.
func (w *gatewayWorld) serving(k model.Key) *model.VirtualService {
	if v, ok := w.snap.Get(k).(*model.VirtualService); ok {
		return v
	}
	return &model.VirtualService{}
}

// servesInMesh reports whether sidecars use the version of a route that serves for a Service or ServiceEntry.
func (w *gatewayWorld) servesInMesh(k model.Key, p *gatewayapi.ParentRef) bool {
	hosts, _ := w.parentHosts(p)
	return slices.ContainsFunc(w.serving(k).InEntries(w.entryHosts).Parents, func(s model.MeshParent) bool {
		return slices.Contains(hosts, s.Host) && (s.Port == 0 || p.Port == 0 || s.Port == p.Port)
	})
}

// attach returns the listeners of a Gateway or ListenerSet that take a route; if none does, the reason of the one that came closest.
func (w *gatewayWorld) attach(k model.Key, r *gatewayapi.RouteRef, p *gatewayapi.ParentRef, g *gatewayapi.GatewayRef) (listeners []string, reason model.AttachReason) {
	return w.attachVersion(&model.VirtualService{Meta: model.Meta{Key: k}, Gateways: []string{p.GatewayName()}, Hosts: r.Hostnames}, p, g)
}

// attachVersion is attach for a version of a route.
func (w *gatewayWorld) attachVersion(route *model.VirtualService, p *gatewayapi.ParentRef, g *gatewayapi.GatewayRef) (listeners []string, reason model.AttachReason) {
	takes, reason := g.AsGateway(p.Key()).AttachAny(route, func(s *model.LabelSelector) bool { return s.Matches(w.snap.NamespaceLabels(route.Namespace)) })
	for _, server := range takes {
		listeners = append(listeners, server.Port.Name)
	}
	return listeners, reason
}

// backends reports whether all backends of a route exist, and whether ReferenceGrants allow them: sidecars need none.
func (w *gatewayWorld) backends(k model.Key, r *gatewayapi.RouteRef, needGrants bool) condition {
	wrong := &complaints{}
	known := gatewayapi.Known{
		Service: func(namespace, name string) *model.Service {
			return w.service(&gatewayapi.ObjectRef{Namespace: namespace, Name: name})
		},
		Hosts: w.hosts,
	}
	if needGrants {
		known.Grants = func(namespace string) []*model.ReferenceGrant { return w.grants[namespace] }
	}
	for _, u := range r.UnresolvedBackends(k, known) {
		wrong.add(u.Reason, u.Field, "%s", u.Text)
	}
	return wrong.resolved()
}

// hosts returns the services of a host.
func (w *gatewayWorld) hosts(host model.Host) []*model.Service {
	var out []*model.Service
	for o := range w.snap.All(model.KindServiceEntry) {
		if e, ok := o.(*model.ServiceEntry); ok && slices.ContainsFunc(e.Hosts, func(h model.Host) bool { return h.Matches(host) }) {
			out = append(out, &e.Template)
		}
	}
	for o := range w.snap.All(model.KindService) {
		if s, ok := o.(*model.Service); ok && s.Hostname == host {
			out = append(out, s)
		}
	}
	return out
}
