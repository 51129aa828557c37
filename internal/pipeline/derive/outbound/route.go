package outbound

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/derive/index"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
)

// Routing derives the routes of one virtual host, or the filter chains of one port. Its input is the Reader.
type Routing struct {
	*index.Reader
	Host    model.Host
	service *model.Service // nil: the host is not a service
	Port    *model.ServicePort
	Uses    *Uses           // takes what routes lead to
	Of      model.GrantFrom // the virtual service in progress
	Gateway string          // "namespace/name" of the Gateway that requests come through; empty: none
}

// Routes makes the routes of a virtual service, with its delegates' in place, up to the first route that matches
// everything.
func (rt *Routing) Routes(v *model.VirtualService) []ir.Route {
	rt.Of = GrantsFor(v)
	rt.Use(v)
	var out []ir.Route
	for _, rule := range rt.withDelegates(v) {
		for _, m := range rt.matches(rule) {
			out = append(out, rt.route(v, rule, m))
			if isCatchAll(m.match) {
				return out
			}
		}
	}
	return out
}

// condition is one match of a rule, with the part that Envoy decides.
type condition struct {
	match *ir.Match // nil: always
	of    model.HTTPMatch
}

// matches returns the conditions under which a rule applies to this client and port; none if it cannot apply.
func (rt *Routing) matches(rule *model.HTTPRoute) []condition {
	if len(rule.Matches) == 0 {
		return []condition{{}}
	}
	var out []condition
	for i := range rule.Matches {
		m := &rule.Matches[i]
		if !rt.applies(m.Port, m.SourceLabels, m.SourceNamespace, m.Gateways) {
			continue
		}
		out = append(out, condition{matchOf(m), *m})
		if isCatchAll(out[len(out)-1].match) {
			break
		}
	}
	return out
}

// applies decides the parts of a match that do not depend on the request.
func (rt *Routing) applies(port uint32, labels map[string]string, ns string, gateways []string) bool {
	if port != 0 && port != rt.Port.Number {
		return false
	}
	if len(gateways) > 0 {
		if rt.Gateway != "" { // for a named gateway, its own labels and namespace do not count
			return slices.Contains(gateways, rt.Gateway)
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

// matchOf is the part of a match that Envoy decides; nil: everything matches.
func matchOf(m *model.HTTPMatch) *ir.Match {
	if m.URI == nil && m.Scheme == nil && m.Method == nil && m.Authority == nil &&
		len(m.Headers)+len(m.WithoutHeaders)+len(m.QueryParams) == 0 {
		return nil
	}
	out := &ir.Match{
		Name: m.Name, URI: m.URI, IgnoreURICase: m.IgnoreURICase,
		Scheme: m.Scheme, Method: m.Method, Authority: m.Authority,
		Headers: m.Headers, WithoutHeaders: m.WithoutHeaders, QueryParams: m.QueryParams,
	}
	if hasOnlyURI(out, model.StringMatch{Kind: model.MatchPrefix, Value: "/"}) {
		return nil
	}
	return out
}

// redirect sets the port of a redirection through a Gateway, and of one of the Gateway API. The route configuration has the
// gateway's own port, and a Service between clients and the gateway may have another.
func (rt *Routing) redirect(v *model.VirtualService, r *model.Redirect) *model.Redirect {
	if r == nil {
		return nil
	}
	named := *r
	if r.PortFromRequest && rt.Gateway != "" {
		named.Port, named.PortFromRequest = rt.Port.Number, false
	}
	if v.Kind.IsKubernetesRoute() && !named.PortFromRequest {
		rt.replacePort(&named)
	}
	return &named
}

// replacePort makes a redirect of the Gateway API lead to the port of its scheme, unless it has another one. Envoy leaves out
// the port of the request only if that is the default one, which clients do not send.
func (rt *Routing) replacePort(r *model.Redirect) {
	own := "http"
	if rt.Port.Protocol.IsTLS() {
		own = "https"
	}
	if r.Port == 0 {
		r.Port = defaultPorts[cmp.Or(r.Scheme, own)]
	}
	r.WritesPort = r.Authority == "" && rt.Port.Number != defaultPorts[own]
}

var defaultPorts = map[string]uint32{"http": 80, "https": 443}

// route makes one rule under one match.
func (rt *Routing) route(v *model.VirtualService, rule *model.HTTPRoute, m condition) ir.Route {
	out := ir.Route{
		Name: rule.Name, Match: m.match, StatPrefix: m.of.StatPrefix,
		Redirect: rt.redirect(v, rule.Redirect), DirectResponse: rule.DirectResponse, Rewrite: rule.Rewrite,
		Fault: rule.Fault, CORS: rule.CORS, Headers: rule.Headers,
		Retry:  rt.retry(rule.Retry),
		Origin: v.Key,
	}
	if rule.Timeout != nil {
		out.Timeout = *rule.Timeout
	}
	if m.of.Name != "" {
		out.Name = strings.Trim(rule.Name+"."+m.of.Name, ".")
	}
	if rule.Redirect != nil || rule.DirectResponse != nil {
		return out
	}
	if rt.grantedNone(rule.Backends) {
		out.DirectResponse = model.NoBackend(v.Kind)
		return out
	}
	out.Backends = rt.backends(rule.Backends, &out)
	for _, mirror := range rule.Mirrors.Used() {
		cluster, host := rt.cluster(mirror.Destination)
		out.Mirrors = append(out.Mirrors, ir.Mirror{Cluster: cluster, Host: host, Percent: mirror.Percent})
	}
	out.Operation = operation(rule.Backends, rt, m.match)
	return out
}

// operation names a route in traces, as Istio does: "host:port/path".
func operation(backends []model.Backend, rt *Routing, m *ir.Match) string {
	host := rt.Host
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
	return fmt.Sprintf("%s:%d%s", host, rt.Port.Number, path)
}

// retry is a rule's policy, else the mesh's; nil: no retries.
func (rt *Routing) retry(r *model.Retry) *model.Retry {
	if r == nil {
		def := rt.Mesh().DefaultRetry
		r = &def
	}
	if r.Attempts == 0 {
		return nil
	}
	out := *r
	if out.RetryOn == "" {
		out.RetryOn = model.DefaultRetryOn // as in Istio, not the mesh's
	}
	return &out
}

// defaultRoute sends everything to the service itself. As in Istio its retries leave the host that a hash selects, unlike those of
// virtual services.
func (rt *Routing) defaultRoute() ir.Route {
	d := model.Destination{Host: rt.Host, Port: rt.Port.Number}
	rt.Uses.Dynamic = rt.Uses.Dynamic || rt.isDynamic(rt.service.Hostname)
	out := ir.Route{Name: "default", Retry: rt.retry(nil)}
	out.Backends = []ir.Backend{{Cluster: ir.OutboundCluster(rt.Port.Number, "", rt.service.Hostname), Host: rt.service.Hostname, Weight: 1}}
	out.Operation = fmt.Sprintf("%s/*", net.JoinHostPort(string(rt.Host), fmt.Sprint(rt.Port.Number)))
	rt.addHash(d, &out)
	if len(out.Hash) > 0 && out.Retry != nil && out.Retry.IgnorePreviousHostsFlag == nil {
		leave := true
		out.Retry.IgnorePreviousHostsFlag = &leave
	}
	return out
}

// AllOfMesh reports whether all destinations of routes belong to the mesh.
func (rt *Routing) AllOfMesh(routes []ir.Route) bool {
	for i := range routes {
		for _, b := range routes[i].Backends {
			if !rt.isOfMesh(b.Host) {
				return false
			}
		}
		for _, m := range routes[i].Mirrors {
			if !rt.isOfMesh(m.Host) {
				return false
			}
		}
	}
	return true
}

func (rt *Routing) isOfMesh(h model.Host) bool {
	if h == "" {
		return false
	}
	svc := rt.Reader.Service(h)
	return svc != nil && !svc.External && svc.ExternalName == ""
}
