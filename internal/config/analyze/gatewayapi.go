package analyze

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// apiChecks are about references of the Gateway API, also of objects that have no effect.
type apiChecks struct {
	*checker
	// attached counts the routes at each listener, by the owner of the listeners.
	attached map[model.Key]map[string]int
}

// all checks the objects in the order of their keys.
func (c apiChecks) all() {
	for _, k := range slices.SortedFunc(maps.Keys(c.raw), model.Key.Compare) {
		if k.Kind != model.KindGatewayClass {
			c.values(k)
		}
		if k.Kind.IsKubernetesRoute() {
			c.parents(k)
			c.attach(k)
		}
		switch {
		case k.Kind == model.KindKubernetesGateway:
			c.class(k)
			c.certificates(k)
		case k.Kind == model.KindListenerSet:
			c.certificates(k)
		case k.Kind.IsKubernetesRoute():
			c.route(k)
		}
	}
	c.unusedListeners()
}

func (c apiChecks) warnf(id code.Code, k model.Key, field, format string, args ...any) *problem.Problem {
	return c.report(id, problem.SeverityWarning, k, field, format, args...)
}

func (c apiChecks) errorf(id code.Code, k model.Key, field, format string, args ...any) *problem.Problem {
	return c.report(id, problem.SeverityError, k, field, format, args...)
}

func (c apiChecks) infof(id code.Code, k model.Key, field, format string, args ...any) {
	c.report(id, problem.SeverityInfo, k, field, format, args...)
}

// otherClasses are those of Istio that have a meaning of their own.
var otherClasses = []string{"istio-remote", "istio-waypoint", "istio-east-west"}

// class reports a GatewayClass that does not exist.
func (c apiChecks) class(k model.Key) {
	var g gatewayv1.Gateway
	if json.Unmarshal(c.raw[k], &g) != nil {
		return
	}
	name := string(g.Spec.GatewayClassName)
	if gatewayapi.ControllerOf(name) != "" || slices.Contains(otherClasses, name) {
		return
	}
	if raw := c.raw[model.Key{Kind: model.KindGatewayClass, Name: name}]; raw != nil {
		var class gatewayv1.GatewayClass
		if json.Unmarshal(raw, &class) == nil && gatewayapi.OtherClass(&class) {
			c.warnf(code.NoEffect, k, "spec.gatewayClassName", "GatewayClass %q: Moonsail does not serve its Gateways: use one of %s", name, strings.Join(gatewayapi.Classes(), ", "))
		}
		return
	}
	if near := spelling.Nearest(name, gatewayapi.Classes()); near != "" {
		c.warnf(code.ClassNotFound, k, "spec.gatewayClassName", "GatewayClass %q: not found, so the Gateway is not served: did you mean %q?", name, near).Set(near)
	} else if name == "" {
		c.errorf(code.ClassNotFound, k, "spec.gatewayClassName", "is missing, so Kubernetes refuses the object; name a GatewayClass: %s", strings.Join(gatewayapi.Classes(), ", "))
	}
}

// certificates reports Secrets of listeners that are missing, cannot be used, or need a ReferenceGrant. If the input has
// no Secrets at all, it has none on purpose.
func (c apiChecks) certificates(k model.Key) {
	g := c.listenersOf(k)
	if g == nil {
		return
	}
	for i := range g.Listeners {
		l := &g.Listeners[i]
		if !l.NeedsSecret() {
			continue
		}
		for j := range l.Certificates {
			if ref := &l.Certificates[j]; ref.IsSecret() {
				key := model.Key{Kind: model.KindSecret, Namespace: ref.Namespace, Name: ref.Name}
				gatewayChecks{c.checker}.gatewayRef(g.AsGateway(k), ref.Field, key, ref.Namespace != k.Namespace)
			}
		}
	}
}

// route reports parents and backends that do not exist, and rules that lead nowhere.
func (c apiChecks) route(k model.Key) {
	refs := gatewayapi.RefsOf(k.Kind, c.raw[k])
	if refs == nil || refs.Route == nil || !c.concerns(refs.Route) {
		return
	}
	for i := range refs.Route.Parents {
		c.parent(k, &refs.Route.Parents[i])
	}
	known := gatewayapi.Known{
		Service: func(namespace, name string) *model.Service {
			return gatewayChecks{c.checker}.kubernetesService(model.ResolveHost(name, namespace, c.domain))
		},
		Hosts: func(h model.Host) []*model.Service { found, _ := c.find(h, k.Namespace); return found },
	}
	if slices.ContainsFunc(refs.Route.Parents, func(p gatewayapi.ParentRef) bool { return p.IsListener() }) {
		known.Grants = func(namespace string) []*model.ReferenceGrant { return c.grants[namespace] }
	}
	for _, u := range refs.Route.UnresolvedBackends(k, known) {
		c.backend(k, refs.Route, u)
	}
	c.leadNowhere(k)
}

// backend reports a backend, unless decoding the route does.
func (c apiChecks) backend(k model.Key, r *gatewayapi.RouteRef, u gatewayapi.Unresolved) {
	ref := &r.Backends[slices.IndexFunc(r.Backends, func(ref gatewayapi.ObjectRef) bool { return ref.Field == u.Field })]
	host := model.ResolveHost(ref.Name, ref.Namespace, c.domain)
	switch {
	case !ref.IsService() && !ref.IsHostname() || ref.Port == 0 || c.brokenService(host):
	case c.missingBackend(ref, host) && c.serviceElsewhere(host) && !c.serviceNamed(ref.Name):
		c.hostElsewhere(k, u.Field, host)
	case u.Reason == gatewayapi.ReasonNotPermitted:
		gatewayChecks{c.checker}.notGranted(model.GrantFrom{Kind: string(k.Kind), Namespace: k.Namespace}, k, u.Field,
			model.Key{Kind: model.KindService, Namespace: ref.Namespace, Name: ref.Name}, !c.missingBackend(ref, host))
		ref.Field = u.Field // what the grant would allow may not be there either
		c.backendHere(k, ref, host)
	default:
		c.backendHere(k, ref, host)
	}
}

// missingBackend reports whether no service has the host of a backend.
func (c apiChecks) missingBackend(ref *gatewayapi.ObjectRef, h model.Host) bool {
	if ref.IsService() {
		return gatewayChecks{c.checker}.kubernetesService(h) == nil
	}
	return len(c.byHost[h]) == 0
}

// serviceNamed reports whether a namespace has a Service with a name.
func (c apiChecks) serviceNamed(name string) bool {
	return slices.ContainsFunc(c.services, func(s *model.Service) bool { return s.IsKubernetes() && s.Name == name })
}

// concerns reports whether a route is for the mesh: not if all its parents are Gateways of other controllers.
func (c apiChecks) concerns(r *gatewayapi.RouteRef) bool {
	return len(r.Parents) == 0 || slices.ContainsFunc(r.Parents, func(p gatewayapi.ParentRef) bool {
		return !p.IsListener() || c.raw[p.Key()] == nil || c.gateways.api[p.Key()] != nil || c.listenersOf(p.Key()) != nil
	})
}

// parent reports a Gateway or a Service that does not exist. Other parts of the configuration may be elsewhere: a missing
// Gateway is reported if the input has Gateways.
func (c apiChecks) parent(k model.Key, p *gatewayapi.ParentRef) {
	if p.IsService() {
		switch host := model.ResolveHost(p.Name, p.Namespace, c.domain); {
		case gatewayChecks{c.checker}.kubernetesService(host) != nil:
		case c.serviceElsewhere(host):
			c.hostElsewhere(k, p.Field, host)
		default:
			c.warnf(code.ParentNotFound, k, p.Field, "Service %s: not found in namespace %s, so the route has no effect: create it, or correct the name", p.Name, p.Namespace)
		}
		return
	}
	if !p.IsListener() || c.raw[p.Key()] != nil || c.gateways.api[p.Key()] != nil {
		return
	}
	var near, elsewhere []string
	for other := range c.raw {
		if other.Kind != p.Key().Kind {
			continue
		}
		if other.Namespace == p.Namespace {
			near = append(near, other.Name)
		}
		if other.Name == p.Name {
			elsewhere = append(elsewhere, other.Namespace)
		}
	}
	slices.Sort(elsewhere)
	switch n := spelling.Nearest(p.Name, near); {
	case len(elsewhere) > 0:
		c.warnf(code.ParentNotFound, k, p.Field, "%s %s: not found in namespace %s, so the route has no effect there: it is in namespace %s: set namespace", p.Kind, p.Name, p.Namespace, elsewhere[0])
	case n != "":
		c.warnf(code.ParentNotFound, k, p.Field+".name", "%s %s: not found in namespace %s, so the route has no effect there: did you mean %s?", p.Kind, p.Name, p.Namespace, n).Set(n)
	default:
		c.infof(code.NotAmongObjects, k, p.Field, "the %s %s of namespace %s is not among the objects; check its name", p.Kind, p.Name, p.Namespace)
	}
}

// backendHere reports a Service or host that does not exist, or does not have the port. The field is the wrong one.
func (c apiChecks) backendHere(k model.Key, ref *gatewayapi.ObjectRef, host model.Host) {
	switch {
	case !ref.IsService():
		c.missingHost(k, ref)
	case c.missingBackend(ref, host):
		c.missingService(k, ref)
	default:
		s := gatewayChecks{c.checker}.kubernetesService(host)
		if s.ExternalName != "" || s.Port(ref.Port) != nil {
			return
		}
		hint := ""
		if len(s.Ports) > 0 {
			hint = "; it has " + ports(s)
		}
		p := c.errorf(code.BackendNotFound, k, ref.Field+".port", "Service %s: no port %d, so requests for it fail%s", ref.Name, ref.Port, hint)
		if len(s.Ports) == 1 {
			p.SetNumber(ports(s))
		}
	}
}

// missingHost reports a host of Istio that no service has, or a port that its services do not have.
func (c apiChecks) missingHost(k model.Key, ref *gatewayapi.ObjectRef) {
	h := model.Host(strings.ToLower(ref.Name))
	if found, _ := c.find(h, k.Namespace); len(found) > 0 {
		c.errorf(code.BackendNotFound, k, ref.Field+".port", "host %s: no port %d, so requests for it fail; it has %s", h, ref.Port, ports(found[0]))
		return
	}
	c.errorf(code.BackendNotFound, k, ref.Field, "host %s: no Service or ServiceEntry, so requests for it fail", h)
}

// missingService reports a Service that does not exist, with the one that was probably meant.
func (c apiChecks) missingService(k model.Key, ref *gatewayapi.ObjectRef) {
	var same, elsewhere []string
	for _, s := range c.services {
		if s.IsKubernetes() && s.Namespace == ref.Namespace {
			same = append(same, s.Name)
		} else if s.IsKubernetes() && s.Name == ref.Name {
			elsewhere = append(elsewhere, s.Namespace)
		}
	}
	slices.Sort(elsewhere)
	near, hint := spelling.Nearest(ref.Name, same), "; write it, or correct the name"
	switch {
	case near != "":
		hint = fmt.Sprintf("; did you mean %s?", near)
	case len(elsewhere) > 0 && elsewhere[0] == k.Namespace:
		hint = fmt.Sprintf("; namespace %s has one: remove namespace", elsewhere[0])
	case len(elsewhere) > 0:
		hint = fmt.Sprintf("; namespace %s has one: set namespace, and add a ReferenceGrant there", elsewhere[0])
	}
	c.errorf(code.BackendNotFound, k, ref.Field+".name", "Service %s: not found in namespace %s, so requests for it fail%s", ref.Name, ref.Namespace, hint).Set(near)
}

// routeRules are the parts of rules that are the same in all kinds of routes.
type routeRules struct {
	Spec struct {
		Rules []struct {
			BackendRefs []any                   `json:"backendRefs"`
			Filters     []struct{ Type string } `json:"filters"`
		} `json:"rules"`
	} `json:"spec"`
}

// pathTypes are the types of matches of paths.
var pathTypes = []string{string(gatewayv1.PathMatchExact), string(gatewayv1.PathMatchPathPrefix), string(gatewayv1.PathMatchRegularExpression)}

// leadNowhere reports rules without a backend, a redirect or another answer.
func (c apiChecks) leadNowhere(k model.Key) {
	var o routeRules
	if json.Unmarshal(c.raw[k], &o) != nil {
		return
	}
	if len(o.Spec.Rules) == 0 {
		c.errorf(code.RuleLeadsNowhere, k, "spec.rules", "are missing, so requests are answered with an error; add a rule with backendRefs")
	}
	for i, r := range o.Spec.Rules {
		answers := slices.ContainsFunc(r.Filters, func(f struct{ Type string }) bool {
			return f.Type == string(gatewayv1.HTTPRouteFilterRequestRedirect) || f.Type == string(gatewayv1.HTTPRouteFilterExtensionRef)
		})
		if len(r.BackendRefs) == 0 && !answers {
			c.errorf(code.RuleLeadsNowhere, k, fmt.Sprintf("spec.rules[%d]", i), "has no backendRefs and no redirect, so what it matches is answered with an error; add backendRefs")
		}
	}
}
