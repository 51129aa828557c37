package analyze

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/gatewayapi"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// gateways are those of a configuration.
type gateways struct {
	byName map[string]*model.Gateway // "namespace/name"
	list   []*model.Gateway
	api    map[model.Key]*model.Gateway // those of the Gateway API, and ListenerSets
}

func (g *gateways) add(o *model.Gateway) {
	if g.byName == nil {
		g.byName, g.api = map[string]*model.Gateway{}, map[model.Key]*model.Gateway{}
	}
	if o.Kind != model.KindGateway {
		g.api[o.Key] = o
		return
	}
	g.byName[o.FullName()] = o
	g.list = append(g.list, o)
}

// all returns those of each API.
func (g *gateways) all() []*model.Gateway {
	return slices.AppendSeq(slices.Clone(g.list), maps.Values(g.api))
}

// placeOf returns the namespace of the routers of a Gateway that is for routers of one namespace.
func (g *gateways) placeOf(o *model.Gateway) string {
	if o.Kind == model.KindListenerSet {
		return o.Parent.Namespace
	}
	return o.Namespace
}

// boundTo reports gateways of a virtual service that are not there, or take none of its hosts.
func (c gatewayChecks) boundTo(v *model.VirtualService) {
	for i, name := range v.Gateways {
		if name == model.GatewayMesh {
			continue
		}
		field := fmt.Sprintf("spec.gateways[%d]", i)
		g := c.gateways.byName[name]
		if ns, short, _ := strings.Cut(name, "/"); g == nil && c.broken[model.Key{Kind: model.KindGateway, Namespace: ns, Name: short}] {
			continue
		}
		if g == nil && c.isOfGatewayAPI(name) {
			c.warnf(code.GatewayNotFound, v, field, "Gateway %s is of the Gateway API and takes no VirtualServices, so the routes have no effect there: write an HTTPRoute for it, or a Gateway of networking.istio.io", name)
			continue
		}
		if meant := c.similarGateway(name); g == nil && meant != "" {
			c.warnf(code.GatewayNotFound, v, field, "Gateway %s: not found, so the routes have no effect there: did you mean %s?", name, meant)
			continue
		}
		if ns, _, _ := strings.Cut(name, "/"); g == nil && c.onlyFiles && !c.istioGatewaysIn(ns) {
			c.elsewhere(v.Key, field, "Gateway "+name, "other Gateways of namespace "+ns)
			continue
		}
		if g == nil {
			c.warnf(code.GatewayNotFound, v, field, "Gateway %s: not found, so the routes have no effect there: write it, or correct the name", name)
			continue
		}
		takes, _ := g.AttachAny(v, c.admits(v.Namespace))
		if len(takes) == 0 && len(v.Gateways) == 1 {
			c.errorf(code.GatewayTakesNoHost, v, field, "no server of Gateway %s takes any of the hosts for namespace %s, so requests for them fail; add them to its hosts", name, v.Namespace)
			continue
		}
		if len(takes) == 0 {
			c.warnf(code.GatewayTakesNoHost, v, field, "no server of Gateway %s takes any of the hosts for namespace %s, so the routes have no effect there; add them to its hosts", name, v.Namespace)
			continue
		}
		c.kindOfRoutes(v, field, name, takes)
	}
}

// kindOfRoutes reports routes of the one kind that no server with their hosts serves.
func (c gatewayChecks) kindOfRoutes(v *model.VirtualService, field, gateway string, servers []*model.GatewayServer) {
	isHTTP := slices.ContainsFunc(servers, (*model.GatewayServer).IsHTTP)
	others := slices.ContainsFunc(servers, func(s *model.GatewayServer) bool { return !s.IsHTTP() })
	s := servers[0]
	at := fmt.Sprintf("port %d, protocol %s", s.Port.Number, strings.ToUpper(string(s.Port.Protocol)))
	if s.TLS != nil {
		at += ", mode " + string(s.TLS.Mode)
	}
	forwards := s.TLS != nil && !s.TLS.EndsTLS()
	advice := "write http routes, or change the protocol"
	switch {
	case len(v.HTTP) > 0 && len(v.TLS) == 0 && len(v.TCP) == 0 && !isHTTP && forwards:
		c.warnf(code.HTTPRoutesOnTCP, v, field, "the http routes have no effect at Gateway %s, which forwards TLS without reading it (%s): write tls routes, or protocol HTTPS and mode SIMPLE", gateway, at)
	case len(v.HTTP) > 0 && len(v.TLS) == 0 && len(v.TCP) == 0 && !isHTTP:
		c.warnf(code.HTTPRoutesOnTCP, v, field, "the http routes have no effect at Gateway %s, which does not read requests (%s): write tcp routes, or change the protocol to HTTP or HTTPS", gateway, at)
	case len(v.HTTP) > 0 || others:
	case len(v.TLS) > 0 && len(v.TCP) == 0:
		if s.TLS != nil {
			advice = "write http routes, or mode PASSTHROUGH"
		}
		c.warnf(code.HTTPRoutesOnTCP, v, field, "the tls routes have no effect at Gateway %s, which reads requests (%s): %s", gateway, at, advice)
	case len(v.TCP) > 0 && len(v.TLS) == 0:
		c.warnf(code.HTTPRoutesOnTCP, v, field, "the tcp routes have no effect at Gateway %s, which reads requests (%s): %s", gateway, at, advice)
	}
}

// attached reports parents of a route of the Gateway API that take it at no listener. Gateways that do not exist are not
// reported: they may be of another controller.
func (c gatewayChecks) attached(v *model.VirtualService) {
	for _, k := range slices.SortedFunc(maps.Keys(c.gateways.api), model.Key.Compare) {
		g := c.gateways.api[k]
		for _, name := range v.Gateways {
			if !g.IsParent(name) || c.raw[k] != nil && c.raw[v.Key] != nil { // see apiChecks.attach
				continue
			}
			if reason := c.closest(g, name, v); reason != model.Attached {
				kind := g.GrantFrom().Kind
				parent := g.Namespace + "/" + g.Name + strings.TrimPrefix(name, g.FullName())
				c.errorf(code.RouteRefused, v, "spec.parentRefs", "%s %s: %s", kind, parent, reason.Advice(kind, v.Key))
			}
		}
	}
}

// closest returns the reason of the listener that comes closest to taking a route by one of its parents. Selectors of
// namespaces take routes of a namespace whose labels are not known.
func (c gatewayChecks) closest(g *model.Gateway, parent string, v *model.VirtualService) model.AttachReason {
	route := &model.VirtualService{Meta: v.Meta, Gateways: []string{parent}, Hosts: v.Hosts}
	_, reason := g.AttachAny(route, c.admits(v.Namespace))
	return reason
}

// admits returns which selectors select a namespace. They select one whose labels are not known.
func (c gatewayChecks) admits(namespace string) func(*model.LabelSelector) bool {
	ns := c.namespaces[namespace]
	return func(s *model.LabelSelector) bool { return ns == nil || s.Matches(ns.Labels) }
}

// kubernetesGateway reports CAs of clients, and a certificate for backends, that cannot be used.
func (c gatewayChecks) kubernetesGateway(g *model.Gateway) {
	for _, port := range slices.Sorted(maps.Keys(g.ClientValidations)) {
		for _, k := range g.ClientValidations[port].CAs {
			c.gatewayRef(g, "spec.tls.frontend", k, k.Namespace != g.Namespace)
		}
	}
	if g.ClientCertificate == "" {
		return
	}
	credential, _ := model.ParseCredential(g.ClientCertificate)
	k, own := credential.In(g.Namespace)
	if !own {
		k = credential.Key()
	}
	c.gatewayRef(g, "spec.tls.backend", k, !own)
}

// gatewayRef reports a Secret or ConfigMap that a Gateway may not refer to, or that cannot be used. If the input has none
// at all, it has none on purpose.
func (c gatewayChecks) gatewayRef(g *model.Gateway, field string, k model.Key, foreign bool) {
	secret := c.secrets[k]
	refused := foreign && !c.granted(g.GrantFrom(), k)
	if refused {
		c.notGranted(g.GrantFrom(), g.Key, field, k, secret != nil)
	}
	// A control plane reads it once an object names it that may refer to it.
	if len(c.secrets) == 0 || secret == nil && (!c.whole || refused && !c.onlyFiles) {
		return
	}
	c.defective(g, field, c.unusable(k, secret, k.Kind == model.KindSecret))
}

// notGranted reports a reference to an object of another namespace that no ReferenceGrant allows. If the object is not among the
// files, its ReferenceGrant may be elsewhere, too.
func (c gatewayChecks) notGranted(from model.GrantFrom, k model.Key, field string, to model.Key, known bool) {
	spec := fmt.Sprintf("{from: [{group: %s, kind: %s, namespace: %s}], to: [{group: \"\", kind: %s, name: %s}]}",
		gatewayapi.Group, from.Kind, from.Namespace, to.Kind, to.Name)
	if c.onlyFiles && !known {
		apiChecks{checker: c.checker}.warnf(code.ReferenceGrantMissing, k, field, "ReferenceGrant: none of these files allows the reference to %s %s of namespace %s, which fails without one: add it to that namespace with spec: %s", to.Kind, to.Name, to.Namespace, spec)
		return
	}
	apiChecks{checker: c.checker}.errorf(code.ReferenceGrantMissing, k, field, "ReferenceGrant: none allows the reference to %s %s of namespace %s, so it fails: add one to that namespace with spec: %s", to.Kind, to.Name, to.Namespace, spec)
}

// granted reports whether a ReferenceGrant allows a reference to an object of another namespace.
func (c gatewayChecks) granted(from model.GrantFrom, to model.Key) bool {
	return slices.ContainsFunc(c.grants[to.Namespace], func(g *model.ReferenceGrant) bool {
		return g.Allows(from, model.GrantTo{Kind: string(to.Kind), Name: to.Name})
	})
}

// listenerSet reports a ListenerSet that its Gateway does not accept, and listeners for which earlier ones leave no place.
// A Gateway that does not exist is not reported: it may be of another controller.
func (c gatewayChecks) listenerSet(set *model.Gateway) {
	parent := c.gateways.api[set.Parent]
	if parent == nil {
		return
	}
	if !parent.AttachSet(set, c.admits(set.Namespace)) {
		c.errorf(code.RouteRefused, set, "spec.parentRef", "has no effect: Gateway %s/%s accepts no ListenerSets of namespace %s; change its allowedListeners", parent.Namespace, parent.Name, set.Namespace)
		return
	}
	displaced := model.Displaced(append([]*model.Gateway{parent}, c.listenerSetsOf(parent)...))
	for i := range set.Servers {
		if conflict := displaced[&set.Servers[i]]; conflict.Reason != "" {
			c.warnf(code.ServerConflict, set, "spec.listeners", "listener %s has no effect: %s; change its port or hostname", set.Servers[i].Port.Name, conflict.Text)
		}
	}
}

// listenerSetsOf are those that a Gateway accepts, the oldest first.
func (c gatewayChecks) listenerSetsOf(parent *model.Gateway) []*model.Gateway {
	var out []*model.Gateway
	for _, o := range c.gateways.api {
		if parent.AttachSet(o, c.admits(o.Namespace)) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, byAge)
	return out
}

func (c gatewayChecks) gateway(g *model.Gateway) {
	routers := c.routers(g)
	if len(routers) == 0 && len(model.WithoutTopology(g.Selector)) > 0 && len(c.workloads) > 0 && !c.onlyFiles {
		c.infof(code.GatewayWithoutRouter, g, "spec.selector", "no Pod has %s; unless a gateway outside of the cluster has these labels, no proxy serves this Gateway", labelText(g.Selector))
	}
	for i := range g.Servers {
		c.serverSecrets(g, fmt.Sprintf("spec.servers[%d].tls", i), &g.Servers[i], routers)
	}
	c.serverConflicts(g)
	c.unreachablePorts(g, routers)
}

// routers are the workloads that a Gateway selects, at any place.
func (c gatewayChecks) routers(g *model.Gateway) []*model.Workload {
	selector := model.WithoutTopology(g.Selector)
	if len(selector) == 0 {
		return nil
	}
	var out []*model.Workload
	for _, ns := range slices.Sorted(maps.Keys(c.workloads)) {
		out = append(out, c.selected(ns, selector)...)
	}
	return out
}

// serverSecrets reports Secrets that are missing or unusable in the namespaces of routers, or in the Gateway's
// namespace if no router is known. If no Secret is known at all, the input has none on purpose, and nothing is
// reported.
func (c gatewayChecks) serverSecrets(g *model.Gateway, field string, s *model.GatewayServer, routers []*model.Workload) {
	if s.TLS == nil || len(c.secrets) == 0 {
		return
	}
	namespaces := map[string]bool{}
	for _, w := range routers {
		namespaces[w.Namespace] = true
	}
	switch {
	case len(namespaces) == 0:
		namespaces[g.Namespace] = true
	case len(namespaces) > 1 && model.SelectsByTopology(g.Selector):
		return // which of them have routers at the place is not known
	}
	for _, ns := range slices.Sorted(maps.Keys(namespaces)) {
		c.secretsOfServer(g, field, s.TLS, ns)
	}
}

// secretsOfServer reports those that proxies of a namespace need to end TLS.
func (c gatewayChecks) secretsOfServer(o model.Object, field string, t *model.ServerTLS, ns string) {
	for _, name := range t.CredentialNames {
		c.serverSecret(o, field+".credentialName", name, ns, true)
	}
	if ca := t.CACredential(); ca != "" {
		c.serverSecret(o, field, ca, ns, false)
	}
}

func (c gatewayChecks) serverSecret(o model.Object, field, name, ns string, pair bool) {
	credential, _ := model.ParseCredential(name)
	key, own := credential.In(ns)
	if !own {
		c.errorf(code.SecretUnusable, o, field, "the Secret is of namespace %s, and proxies of %s get only Secrets of their own namespace", credential.Namespace, ns)
		return
	}
	secret := c.secrets[key]
	if !pair {
		key, secret = secretChecks(c).withCAs(key, secret)
	}
	c.defective(o, field, c.unusable(key, secret, pair))
}

// serverConflicts reports servers that have no place beside those of older Gateways for the same
// routers, or of their own.
func (c gatewayChecks) serverConflicts(g *model.Gateway) {
	var placed []placedServer
	for _, other := range c.sameRouters(g) {
		for i := range other.Servers {
			s := &other.Servers[i]
			if !s.IsServed(true) {
				continue
			}
			by, reason := conflict(placed, s)
			switch {
			case reason == "":
				placed = append(placed, placedServer{other, s})
			case other == g && len(by.Selector) > len(g.Selector):
				c.warnf(code.ServerConflict, g, fmt.Sprintf("spec.servers[%d]", i), "has no effect at routers with %s: %s", labelText(by.Selector), reason)
			case other == g:
				c.warnf(code.ServerConflict, g, fmt.Sprintf("spec.servers[%d]", i), "has no effect: %s", reason)
			}
		}
	}
}

// sameRouters are the Gateways whose selectors select routers of a Gateway, or all of them, the oldest first.
func (c gatewayChecks) sameRouters(g *model.Gateway) []*model.Gateway {
	var out []*model.Gateway
	for _, o := range c.gateways.list {
		if len(o.Selector) > 0 && model.SelectorMatches(o.Selector, g.Selector) || len(g.Selector) > 0 && model.SelectorMatches(g.Selector, o.Selector) || maps.Equal(o.Selector, g.Selector) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, byAge)
	return out
}

type placedServer struct {
	of     *model.Gateway
	server *model.GatewayServer
}

// conflict returns the Gateway that a server cannot stand beside, and why not; "": there is none.
func conflict(placed []placedServer, s *model.GatewayServer) (by *model.Gateway, reason string) {
	for _, p := range placed {
		if p.server.Port.Number != s.Port.Number || p.server.Bind != s.Bind {
			continue
		}
		if c := p.server.Conflict(s); c.Reason != "" {
			return p.of, fmt.Sprintf("%s (port %s) has port %d, too, and %s", p.of.Key, p.server.Port.Name, s.Port.Number, c.Text)
		}
	}
	return nil, ""
}

// isOfGatewayAPI reports whether a name is that of a Gateway of the Gateway API.
func (c gatewayChecks) isOfGatewayAPI(name string) bool {
	ns, short, _ := strings.Cut(name, "/")
	return c.gateways.api[model.Key{Kind: model.KindKubernetesGateway, Namespace: ns, Name: short}] != nil
}

// similarGateway returns the Gateway that was probably meant: one with the name in another namespace, or with a similar name.
func (c gatewayChecks) similarGateway(name string) string {
	ns, short, _ := strings.Cut(name, "/")
	var near, same []string
	for _, g := range c.gateways.list {
		switch {
		case g.Name == short:
			same = append(same, g.FullName())
		case g.Namespace == ns:
			near = append(near, g.Name)
		}
	}
	if n := spelling.Nearest(short, near); n != "" {
		return ns + "/" + n
	}
	if len(same) > 0 {
		return slices.Min(same)
	}
	return ""
}

// istioGatewaysIn reports whether a namespace has Gateways of Istio.
func (c gatewayChecks) istioGatewaysIn(ns string) bool {
	return slices.ContainsFunc(c.gateways.list, func(g *model.Gateway) bool { return g.Namespace == ns })
}
