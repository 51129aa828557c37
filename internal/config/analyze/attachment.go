package analyze

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// listenersOf returns the listeners of a Gateway or ListenerSet among the files, also of one with errors; nil: it is not there, or
// of another controller. A misspelt class or protocol counts as what was meant: its own message must not lead to more.
func (c apiChecks) listenersOf(k model.Key) *gatewayapi.GatewayRef {
	g := c.listenersAsWritten(k)
	if g == nil {
		return nil
	}
	for i := range g.Listeners {
		g.Listeners[i].Protocol = strings.ToUpper(g.Listeners[i].Protocol)
	}
	return g
}

// listenersAsWritten is listenersOf with misspelt protocols.
func (c apiChecks) listenersAsWritten(k model.Key) *gatewayapi.GatewayRef {
	raw := c.raw[k]
	var g gatewayv1.Gateway
	if k.Kind == model.KindKubernetesGateway && json.Unmarshal(raw, &g) == nil {
		name := string(g.Spec.GatewayClassName)
		if near := spelling.Nearest(name, gatewayapi.Classes()); near != "" && near != name && !slices.Contains(otherClasses, name) &&
			c.raw[model.Key{Kind: model.KindGatewayClass, Name: name}] == nil {
			g.Spec.GatewayClassName = gatewayv1.ObjectName(near)
			raw, _ = json.Marshal(&g) // it was read from JSON
		}
	}
	refs := gatewayapi.RefsOf(k.Kind, raw)
	if refs == nil || refs.Gateway == nil {
		return nil
	}
	if k.Kind == model.KindListenerSet && c.listenersAsWritten(refs.Gateway.Parent) == nil {
		return nil
	}
	return refs.Gateway
}

// attach reports parents of a route that take it at no listener, with all that is in the way.
func (c apiChecks) attach(k model.Key) {
	refs := gatewayapi.RefsOf(k.Kind, c.raw[k])
	if refs == nil || refs.Route == nil {
		return
	}
	for i := range refs.Route.Parents {
		p := &refs.Route.Parents[i]
		if !p.IsListener() {
			continue
		}
		if g := c.listenersOf(p.Key()); g != nil {
			route := &model.VirtualService{Meta: model.Meta{Key: k}, Hosts: refs.Route.Hostnames}
			c.attachTo(route, p, g.AsGateway(p.Key()).Servers)
		}
	}
}

// attachTo reports why none of a parent's listeners takes a route.
func (c apiChecks) attachTo(route *model.VirtualService, p *gatewayapi.ParentRef, all []model.GatewayServer) {
	named := c.namedListeners(route, p, all)
	var closest *obstacles
	for i := range named {
		o := c.obstaclesAt(route, named[i])
		if o.count == 0 {
			c.count(p.Key(), named[i])
		}
		if closest == nil || o.count < closest.count || o.count == closest.count && o.reason() > closest.reason() {
			closest = &o
		}
	}
	if closest == nil || closest.count == 0 {
		return
	}
	for _, l := range named {
		c.count(p.Key(), l) // it was probably meant for one of them
	}
	at := fmt.Sprintf("listener %s of %s", closest.at.Port.Name, parentName(p))
	if len(named) > 1 {
		at += ", which comes closest,"
	}
	field := p.Field
	if p.Section != "" {
		field += ".sectionName"
	}
	if closest.kind {
		c.errorf(code.RouteRefused, route.Key, field, "%s takes no routes of kind %s, so the route has no effect there: change protocol or allowedRoutes.kinds of the listener, or name another one", at, route.Kind)
	}
	if closest.namespace {
		c.errorf(code.RouteRefused, route.Key, field, "%s takes no routes of namespace %s, so the route has no effect there: set allowedRoutes: {namespaces: {from: All}} at the listener, or select the namespace there", at, route.Namespace)
	}
	if closest.hostname {
		c.errorf(code.RouteRefused, route.Key, "spec.hostnames", "%s is for %s, which is none of the hostnames, so the route has no effect there: change hostnames, or the listener's hostname", at, closest.at.Hosts[0].Host)
	}
}

// count adds a route of a listener.
func (c apiChecks) count(parent model.Key, l *model.GatewayServer) {
	if c.attached[parent] == nil {
		c.attached[parent] = map[string]int{}
	}
	c.attached[parent][l.Port.Name]++
}

// parentName is a parent as messages call it.
func parentName(p *gatewayapi.ParentRef) string {
	return fmt.Sprintf("%s %s/%s", p.Kind, p.Namespace, p.Name)
}

// namedListeners returns the listeners that a parentRef names. If there are none, it reports that, and returns those that were
// probably meant.
func (c apiChecks) namedListeners(route *model.VirtualService, p *gatewayapi.ParentRef, all []model.GatewayServer) []*model.GatewayServer {
	var bySection, byPort, both, fitting []*model.GatewayServer
	var names, numbers []string
	written := c.listenersAsWritten(p.Key()).Listeners
	for i := range all {
		l := &all[i]
		section, port := p.Section == "" || p.Section == l.Port.Name, p.Port == 0 || p.Port == l.Port.Number
		if section {
			bySection = append(bySection, l)
		}
		if port {
			byPort = append(byPort, l)
		}
		if section && port {
			both = append(both, l)
		}
		if slices.Contains(written[i].Possible(), route.Kind) {
			fitting = append(fitting, l)
		}
		names, numbers = append(names, l.Port.Name), append(numbers, l.PortText())
	}
	switch {
	case len(both) > 0 || len(all) == 0:
		return both
	case len(bySection) == 0:
		near := spelling.Nearest(p.Section, names)
		if near == "" && len(fitting) == 1 {
			near = fitting[0].Port.Name
		}
		hint := fmt.Sprintf("; it has %s", strings.Join(names, ", "))
		if near != "" {
			hint = fmt.Sprintf("; did you mean %s?", near)
		}
		c.errorf(code.RouteRefused, route.Key, p.Field+".sectionName", "%s: no listener %s, so the route has no effect there%s", parentName(p), p.Section, hint).Set(near)
		if i := slices.Index(names, near); i >= 0 {
			return []*model.GatewayServer{&all[i]}
		}
	case len(byPort) == 0 && p.Section == "":
		slices.Sort(numbers)
		c.errorf(code.RouteRefused, route.Key, p.Field+".port", "%s: no listener with port %d, so the route has no effect there; it has %s", parentName(p), p.Port, strings.Join(slices.Compact(numbers), ", "))
	default:
		c.errorf(code.RouteRefused, route.Key, p.Field+".port", "%s: listener %s has port %d and not %d, so the route has no effect there: correct sectionName or port", parentName(p), p.Section, bySection[0].Port.Number, p.Port).SetNumber(bySection[0].PortText())
		return bySection
	}
	var out []*model.GatewayServer
	for i := range all {
		out = append(out, &all[i])
	}
	return out
}

// obstacles are the reasons why a listener does not take a route.
type obstacles struct {
	at                        *model.GatewayServer
	kind, namespace, hostname bool
	count                     int
}

// reason is the one that AttachBound gives.
func (o *obstacles) reason() model.AttachReason {
	switch {
	case o.kind || o.namespace:
		return model.NotAllowedByListeners
	case o.hostname:
		return model.NoMatchingListenerHostname
	}
	return model.Attached
}

// obstaclesAt judges each condition of AttachBound by itself.
func (c apiChecks) obstaclesAt(route *model.VirtualService, l *model.GatewayServer) obstacles {
	admitted := l
	if l.Namespaces != nil && (gatewayChecks{c.checker}).admits(route.Namespace)(l.Namespaces) {
		admitted = l.Admit([]string{route.Namespace})
	}
	o := obstacles{
		at: l, kind: !l.Takes(route.Kind), namespace: len(admitted.HostsFor(route.Namespace)) == 0,
		hostname: len(model.CommonHosts(l.AllHosts(), route.Hosts)) == 0,
	}
	for _, there := range []bool{o.kind, o.namespace, o.hostname} {
		if there {
			o.count++
		}
	}
	return o
}

// unusedListeners reports listeners without routes of Gateways and ListenerSets that have routes at others. Routes of files that
// are checked against a cluster may be in the cluster.
func (c apiChecks) unusedListeners() {
	if !c.onlyFiles {
		return
	}
	for k, routes := range c.attached {
		for i, l := range c.listenersOf(k).Listeners {
			if routes[l.Name] == 0 && len(l.Possible()) > 0 {
				c.infof(code.ListenerWithoutRoutes, k, fmt.Sprintf("spec.listeners[%d]", i), "no route among the files attaches to listener %s, so what it receives is answered with an error; write one, or remove the listener", l.Name)
			}
		}
	}
}
