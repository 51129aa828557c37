package derive

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/view"
)

// routing is what the routes of one virtual host are derived from.
type routing struct {
	*reader
	s       *scope
	host    model.Host
	service *model.Service // nil: the virtual service's host is no service
	port    *model.ServicePort
	out     *hostResult     // takes the hosts that routes refer to
	of      model.GrantFrom // the virtual service that is worked on
	gateway string          // "namespace/name" of the Gateway that requests come through; empty: none
}

// deriveVirtualHost makes the virtual host of one host on one port.
func (s *scope) deriveVirtualHost(r *reader, at placement, h model.Host, svc *model.Service, port *model.ServicePort, routes *model.VirtualService, out *hostResult) *view.VirtualHost {
	rt := &routing{reader: r, s: s, host: h, service: svc, port: port, out: out}
	v := &view.VirtualHost{
		RouteConfig:     at.routeConfig,
		Name:            fmt.Sprintf("%s:%d", h, port.Number),
		Domains:         s.hostDomains(h, svc),
		IncludeAttempts: !s.headers(r.mesh()).NoAttempts,
	}
	if at.sniffed {
		v.Domains = []string{"*"}
	}
	if routes != nil {
		v.Routes = rt.fromVirtualService(routes)
	}
	if len(v.Routes) == 0 && svc != nil {
		// Nobody has a rule for this client and port.
		v.Routes = []view.Route{rt.defaultRoute()}
	}
	v.TellsPeer = rt.tellsPeer(v.Routes)
	return v
}

// hostDomains are the names under which clients of the scope call a host, the full name
// first. Ports are ignored when domains are matched.
func (s *scope) hostDomains(h model.Host, svc *model.Service) []string {
	out := []string{string(h)}
	if svc == nil {
		return append(out, s.shortNames(string(h))...)
	}
	if svc.IsKubernetes() {
		out = append(out, s.shortNames(string(h))...)
	}
	if svc.IsKubernetes() && svc.Headless {
		for _, d := range slices.Clone(out) { // names of its Pods
			out = append(out, "*."+d)
		}
	}
	for _, a := range svc.Addresses {
		if !a.IsSingleIP() {
			continue
		}
		text := a.Addr().String()
		if a.Addr().Is6() {
			text = "[" + text + "]"
		}
		if !slices.Contains(out, text) { // Envoy refuses a domain that is there twice
			out = append(out, text)
		}
	}
	return out
}

// shortNames of "reviews.shop.svc.cluster.local": "reviews.shop.svc", "reviews.shop" and,
// within its namespace, "reviews".
func (s *scope) shortNames(h string) []string {
	base, ok := strings.CutSuffix(h, "."+s.Key.Domain)
	if !ok {
		return nil
	}
	two, ok := strings.CutSuffix(base, ".svc")
	if !ok {
		return nil
	}
	out := []string{base, two}
	if name, ok := strings.CutSuffix(two, "."+s.Key.Namespace); ok && name != "*" && !strings.Contains(name, ".") {
		out = append(out, name)
	}
	return out
}

// fromVirtualService makes the routes of a virtual service, delegates put in place, up to
// the first one that matches everything.
func (rt *routing) fromVirtualService(v *model.VirtualService) []view.Route {
	rt.of = grantsFor(v)
	var out []view.Route
	for _, rule := range rt.withDelegates(v) {
		for _, m := range rt.matches(rule) {
			out = append(out, rt.route(v, rule, m))
			if m.view == nil {
				return out
			}
		}
	}
	return out
}

// condition is one match of a rule, with what is left of it for Envoy to decide.
type condition struct {
	view *view.Match // nil: always
	said model.HTTPMatch
}

// matches gives the conditions under which a rule holds for this client and port; none
// where it cannot hold.
func (rt *routing) matches(rule *model.HTTPRoute) []condition {
	if len(rule.Matches) == 0 {
		return []condition{{}}
	}
	var out []condition
	for i := range rule.Matches {
		m := &rule.Matches[i]
		if !rt.applies(m.Port, m.SourceLabels, m.SourceNamespace, m.Gateways) {
			continue
		}
		out = append(out, condition{matchView(m), *m})
		if out[len(out)-1].view == nil {
			break
		}
	}
	return out
}

// applies decides the parts of a match that are known before there is a request.
func (rt *routing) applies(port uint32, labels map[string]string, ns string, gateways []string) bool {
	if port != 0 && port != rt.port.Number {
		return false
	}
	if len(gateways) > 0 {
		if rt.gateway != "" { // where it is named, where the gateway is does not matter
			return slices.Contains(gateways, rt.gateway)
		}
		if !slices.Contains(gateways, model.GatewayMesh) {
			return false
		}
	}
	if ns != "" && ns != rt.s.Key.Namespace {
		return false
	}
	return model.SelectorMatches(labels, rt.s.labels)
}

// matchView is what remains of a match for Envoy to decide; nil: everything.
func matchView(m *model.HTTPMatch) *view.Match {
	if m.URI == nil && m.Scheme == nil && m.Method == nil && m.Authority == nil &&
		len(m.Headers)+len(m.WithoutHeaders)+len(m.QueryParams) == 0 {
		return nil
	}
	out := &view.Match{
		Name: m.Name, URI: m.URI, IgnoreURICase: m.IgnoreURICase,
		Scheme: m.Scheme, Method: m.Method, Authority: m.Authority,
		Headers: m.Headers, WithoutHeaders: m.WithoutHeaders, QueryParams: m.QueryParams,
	}
	if matchesAnyPath(out) {
		return nil
	}
	return out
}

// matchesAnyPath tells whether a match is the prefix "/" and nothing else.
func matchesAnyPath(m *view.Match) bool {
	return m.URI != nil && m.URI.Kind == model.MatchPrefix && m.URI.Value == "/" &&
		m.Scheme == nil && m.Method == nil && m.Authority == nil &&
		len(m.Headers)+len(m.WithoutHeaders)+len(m.QueryParams) == 0
}

// route makes one rule under one match.
func (rt *routing) route(v *model.VirtualService, rule *model.HTTPRoute, m condition) view.Route {
	out := view.Route{
		Name: rule.Name, Match: m.view, StatPrefix: m.said.StatPrefix,
		Redirect: rule.Redirect, DirectResponse: rule.DirectResponse, Rewrite: rule.Rewrite,
		Fault: rule.Fault, CORS: rule.CORS, Headers: rule.Headers,
		Retry:  rt.retry(rule.Retry),
		Origin: v.Namespace + "/" + v.Name,
	}
	if v.Kind.IsKubernetesRoute() {
		out.OriginKind = v.Kind
	}
	if rule.Timeout != nil {
		out.Timeout = *rule.Timeout
	}
	if m.said.Name != "" {
		out.Name = strings.Trim(rule.Name+"."+m.said.Name, ".")
	}
	if rule.Redirect != nil || rule.DirectResponse != nil {
		return out
	}
	if rt.grantedNone(rule.Backends) {
		out.DirectResponse = model.NoBackend(v.Kind)
		return out
	}
	out.Backends = rt.backends(rule.Backends, &out)
	for _, mirror := range rule.Mirrors {
		out.Mirrors = append(out.Mirrors, view.Mirror{Cluster: rt.cluster(mirror.Destination), Percent: mirror.Percent})
	}
	out.Operation = operation(rule.Backends, rt, m.view)
	return out
}

// operation names a route in traces, as Istio does: "host:port/path".
func operation(backends []model.Backend, rt *routing, m *view.Match) string {
	host := rt.host
	if len(backends) > 0 {
		host = backends[0].Host
	}
	path := "/*"
	if m != nil && m.URI != nil {
		path = m.URI.Value
		if m.URI.Kind == model.MatchPrefix || m.URI.Kind == model.MatchPathPrefix {
			path += "*"
		}
	}
	return fmt.Sprintf("%s:%d%s", host, rt.port.Number, path)
}

// backends resolves weighted destinations, and adds their hash policies to the route.
func (rt *routing) backends(list []model.Backend, out *view.Route) []view.Backend {
	resolved := make([]view.Backend, 0, len(list))
	for _, b := range list {
		if !rt.granted(b.Grant) {
			resolved = append(resolved, view.Backend{Cluster: view.UnknownService, Weight: max(b.Weight, 1)})
			continue
		}
		weight := b.Weight
		if weight == 0 {
			if len(list) > 1 {
				continue
			}
			weight = 1
		}
		resolved = append(resolved, view.Backend{Cluster: rt.cluster(b.Destination), Weight: weight, Headers: b.Headers})
		rt.addHash(b.Destination, out)
	}
	return resolved
}

// grantedNone tells whether there are backends, and requests may go to none of them.
func (rt *routing) grantedNone(list []model.Backend) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(b model.Backend) bool { return rt.granted(b.Grant) })
}

// granted tells whether a ReferenceGrant allows what needs one.
func (rt *routing) granted(k *model.Key) bool {
	if k == nil {
		return true
	}
	for _, g := range appendPolicies[*model.ReferenceGrant](nil, rt.reader, model.KindReferenceGrant, k.Namespace, nil) {
		if g.Allows(rt.of, model.GrantTo{Kind: string(k.Kind), Name: k.Name}) {
			return true
		}
	}
	return false
}

func grantsFor(v *model.VirtualService) model.GrantFrom {
	return model.GrantFrom{Kind: string(v.Kind), Namespace: v.Namespace}
}

// cluster names a destination's cluster. A destination that the scope does not see gets a
// name too: Envoy answers 503 until it appears.
func (rt *routing) cluster(d model.Destination) string {
	host := rt.clusterHost(d.Host)
	rt.out.refs = append(rt.out.refs, host)
	rt.out.dynamic = rt.out.dynamic || rt.isDynamic(host)
	return outboundCluster(rt.destinationPort(d), d.Subset, host)
}

// isDynamic tells whether Envoy resolves the hosts of a service by each request.
func (rt *routing) isDynamic(h model.Host) bool {
	svc := rt.reader.service(h)
	return svc != nil && svc.Resolution == model.ResolutionDynamicDNS
}

// clusterHost is the host whose cluster serves h: h itself, or the wildcard service that covers it.
func (rt *routing) clusterHost(h model.Host) model.Host {
	if svc := rt.destination(h); svc != nil {
		return svc.Hostname
	}
	return h
}

// destination is the service that a destination's host means, through aliases.
func (rt *routing) destination(h model.Host) *model.Service {
	svc := rt.reader.coveringService(h)
	if target := rt.aliased(svc); target != nil {
		return target
	}
	return svc
}

// destinationPort is the port that was asked for; else the service's only one; else the
// one that was called.
func (rt *routing) destinationPort(d model.Destination) uint32 {
	if d.Port != 0 {
		return d.Port
	}
	if svc := rt.destination(d.Host); svc != nil && len(svc.Ports) == 1 {
		return svc.Ports[0].Number
	}
	return rt.port.Number
}

// addHash adds the hash policy of a destination's load balancer.
func (rt *routing) addHash(d model.Destination, out *view.Route) {
	hash := rt.hashPolicy(d)
	if hash == nil || slices.ContainsFunc(out.Hash, func(h model.HashPolicy) bool { return sameHash(h, *hash) }) {
		return
	}
	out.Hash = append(out.Hash, *hash)
}

func sameHash(a, b model.HashPolicy) bool {
	if (a.Cookie == nil) != (b.Cookie == nil) {
		return false
	}
	if a.Cookie != nil && a.Cookie.Name != b.Cookie.Name {
		return false
	}
	return a.Header == b.Header && a.QueryParam == b.QueryParam && a.SourceIP == b.SourceIP
}

// hashPolicy is that of a destination's load balancer, nil where it does not hash.
func (rt *routing) hashPolicy(d model.Destination) *model.HashPolicy {
	svc := rt.destination(d.Host)
	if svc == nil {
		return nil
	}
	rule := rt.rule(svc.Hostname, svc.Namespace)
	if rule == nil {
		return nil
	}
	port := rt.destinationPort(d)
	policy := portPolicy(rule, port)
	for _, sub := range rule.Subsets {
		if sub.Name == d.Subset {
			policy = policy.Merge(sub.Policy)
			if p, ok := sub.Ports[port]; ok {
				policy = overridePort(policy, p)
			}
		}
	}
	if policy.LoadBalancer == nil {
		return nil
	}
	return policy.LoadBalancer.Hash
}

// retry is a rule's policy, or the mesh's; nil where retries are off.
func (rt *routing) retry(r *model.Retry) *model.Retry {
	if r == nil {
		def := rt.mesh().DefaultRetry
		r = &def
	}
	if r.Attempts == 0 {
		return nil
	}
	out := *r
	if out.RetryOn == "" {
		out.RetryOn = rt.mesh().DefaultRetry.RetryOn
	}
	return &out
}

// defaultRoute sends everything to the service itself.
func (rt *routing) defaultRoute() view.Route {
	d := model.Destination{Host: rt.host, Port: rt.port.Number}
	rt.out.dynamic = rt.out.dynamic || rt.isDynamic(rt.service.Hostname)
	out := view.Route{Name: "default", Retry: rt.retry(nil)}
	out.Backends = []view.Backend{{Cluster: outboundCluster(rt.port.Number, "", rt.service.Hostname), Weight: 1}}
	out.Operation = fmt.Sprintf("%s/*", net.JoinHostPort(string(rt.host), fmt.Sprint(rt.port.Number)))
	rt.addHash(d, &out)
	return out
}
