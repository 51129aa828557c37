package derive

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// routing is what the routes of one virtual host are derived from.
type routing struct {
	*index.Reader
	s       *proxyGroup
	host    model.Host
	service *model.Service // nil: the virtual service's host is no service
	port    *model.ServicePort
	out     *hostResult     // takes the hosts that routes refer to
	of      model.GrantFrom // the virtual service that is worked on
	gateway string          // "namespace/name" of the Gateway that requests come through; empty: none
}

// fromVirtualService makes the routes of a virtual service, delegates put in place, up to
// the first one that matches everything.
func (rt *routing) fromVirtualService(v *model.VirtualService) []ir.Route {
	rt.of = grantsFor(v)
	rt.Use(v)
	var out []ir.Route
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
	view *ir.Match // nil: always
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
	if ns != "" && ns != rt.Key.Namespace {
		return false
	}
	return model.SelectorMatches(labels, rt.Labels)
}

// matchView is what remains of a match for Envoy to decide; nil: everything.
func matchView(m *model.HTTPMatch) *ir.Match {
	if m.URI == nil && m.Scheme == nil && m.Method == nil && m.Authority == nil &&
		len(m.Headers)+len(m.WithoutHeaders)+len(m.QueryParams) == 0 {
		return nil
	}
	out := &ir.Match{
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
func matchesAnyPath(m *ir.Match) bool {
	return m.URI != nil && m.URI.Kind == model.MatchPrefix && m.URI.Value == "/" &&
		m.Scheme == nil && m.Method == nil && m.Authority == nil &&
		len(m.Headers)+len(m.WithoutHeaders)+len(m.QueryParams) == 0
}

// redirect names the port of requests that come through a Gateway: the route configuration has that of the router, and
// between clients and it there may be a Service that has another.
func (rt *routing) redirect(r *model.Redirect) *model.Redirect {
	if r == nil || !r.PortFromRequest || rt.gateway == "" {
		return r
	}
	named := *r
	named.Port, named.PortFromRequest = rt.port.Number, false
	return &named
}

// route makes one rule under one match.
func (rt *routing) route(v *model.VirtualService, rule *model.HTTPRoute, m condition) ir.Route {
	out := ir.Route{
		Name: rule.Name, Match: m.view, StatPrefix: m.said.StatPrefix,
		Redirect: rt.redirect(rule.Redirect), DirectResponse: rule.DirectResponse, Rewrite: rule.Rewrite,
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
		cluster, host := rt.cluster(mirror.Destination)
		out.Mirrors = append(out.Mirrors, ir.Mirror{Cluster: cluster, Host: host, Percent: mirror.Percent})
	}
	out.Operation = operation(rule.Backends, rt, m.view)
	return out
}

// operation names a route in traces, as Istio does: "host:port/path".
func operation(backends []model.Backend, rt *routing, m *ir.Match) string {
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

// retry is a rule's policy, or the mesh's; nil where retries are off.
func (rt *routing) retry(r *model.Retry) *model.Retry {
	if r == nil {
		def := rt.Mesh().DefaultRetry
		r = &def
	}
	if r.Attempts == 0 {
		return nil
	}
	out := *r
	if out.RetryOn == "" {
		out.RetryOn = rt.Mesh().DefaultRetry.RetryOn
	}
	return &out
}

// defaultRoute sends everything to the service itself.
func (rt *routing) defaultRoute() ir.Route {
	d := model.Destination{Host: rt.host, Port: rt.port.Number}
	rt.out.dynamic = rt.out.dynamic || rt.isDynamic(rt.service.Hostname)
	out := ir.Route{Name: "default", Retry: rt.retry(nil)}
	out.Backends = []ir.Backend{{Cluster: ir.OutboundCluster(rt.port.Number, "", rt.service.Hostname), Host: rt.service.Hostname, Weight: 1}}
	out.Operation = fmt.Sprintf("%s/*", net.JoinHostPort(string(rt.host), fmt.Sprint(rt.port.Number)))
	rt.addHash(d, &out)
	return out
}
