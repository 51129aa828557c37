package gatewayapi

import (
	"regexp"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// HTTPRoute decodes an HTTPRoute of the Gateway API into the model of VirtualServices: for its hosts at Gateways, and in the
// mesh for the hosts of Services and ServiceEntries. nil: it has no parent here.
func HTTPRoute(in convert.Cluster, o *gatewayv1.HTTPRoute) (*model.VirtualService, problem.List) {
	c, spec := start(in, model.KindHTTPRoute, &o.ObjectMeta), &o.Spec
	v := c.route(problem.Path("spec"), &spec.CommonRouteSpec, spec.Hostnames)
	c.rules(v, len(spec.Rules), func(at problem.Path, i int) []model.HTTPRoute { return c.rule(at, &spec.Rules[i]) })
	return v, c.Problems
}

// rules adds what rules become to a route, if there is one, in the order of the Gateway API.
func (c *conv) rules(v *model.VirtualService, n int, rule func(problem.Path, int) []model.HTTPRoute) {
	if v == nil {
		return
	}
	for i := range n {
		v.HTTP = append(v.HTTP, rule(problem.Path("spec.rules").Index(i), i)...)
	}
	slices.SortStableFunc(v.HTTP, func(a, b model.HTTPRoute) int { return compareMatches(a.Matches, b.Matches) })
}

// route is a route without its rules; nil: it has no parent here.
func (c *conv) route(at problem.Path, common *gatewayv1.CommonRouteSpec, hostnames []gatewayv1.Hostname) *model.VirtualService {
	v := &model.VirtualService{Meta: c.Meta}
	c.parents(at.Field("parentRefs"), common.ParentRefs, v)
	if common.UseDefaultGateways != "" && common.UseDefaultGateways != gatewayv1.GatewayDefaultScopeNone {
		c.Warnf(code.NotSupported, at.Field("useDefaultGateways"), "has no effect: there are no default Gateways; name Gateways in parentRefs")
	}
	if len(v.Gateways) == 0 {
		return nil
	}
	v.Hosts = c.routeHosts(at.Field("hostnames"), hostnames)
	return v
}

// parents sets the gateways, and the Services and ServiceEntries.
func (c *conv) parents(at problem.Path, refs []gatewayv1.ParentReference, v *model.VirtualService) {
	for i := range refs {
		ref := parentRef(at.Index(i), c.Meta.Namespace, &refs[i])
		if ref.IsOfMesh() && ref.Section != "" {
			c.Warnf(code.NoEffect, at.Index(i).Field("sectionName"), "has no effect for a %s, so that it restricts the route to no port; write port", ref.Kind)
		}
		switch {
		case ref.IsListener():
			v.Gateways = append(v.Gateways, ref.GatewayName())
		case ref.IsService():
			v.Parents = append(v.Parents, model.MeshParent{Host: model.ResolveHost(ref.Name, ref.Namespace, c.Domain), Namespace: ref.Namespace, Port: ref.Port})
		case ref.IsServiceEntry():
			entry := ref.Key()
			v.Parents = append(v.Parents, model.MeshParent{Namespace: ref.Namespace, Entry: &entry, Port: ref.Port})
		case ref.Kind == "Service":
			c.Warnf(code.NotAllowedHere, at.Index(i).Field("group"), "%s cannot be a parent of routes; write group: \"\" for a Service of Kubernetes", ref.KindText())
		}
	}
	if len(v.Parents) > 0 {
		v.Gateways = append(v.Gateways, model.GatewayMesh)
	}
}

func (c *conv) routeHosts(at problem.Path, list []gatewayv1.Hostname) []model.Host {
	if len(list) == 0 {
		return []model.Host{"*"}
	}
	var out []model.Host
	for i, h := range list {
		if c.CheckHost(at.Index(i), string(h), true) {
			out = append(out, model.Host(strings.ToLower(string(h))))
		}
	}
	return out
}

// rule makes a rule for each match, so that they can be put in the order of the Gateway
// API.
func (c *conv) rule(at problem.Path, r *gatewayv1.HTTPRouteRule) []model.HTTPRoute {
	base := c.ruleBase(at, r)
	if len(r.Matches) == 0 {
		base.Rewrite, base.Redirect = rewriteOf(r.Filters, ""), redirectOf(base.Redirect, r.Filters, "")
		return []model.HTTPRoute{base}
	}
	var out []model.HTTPRoute
	for i := range r.Matches {
		rule := base
		prefix := prefixOf(&r.Matches[i])
		rule.Rewrite, rule.Redirect = rewriteOf(r.Filters, prefix), redirectOf(base.Redirect, r.Filters, prefix)
		if m := c.match(at.Field("matches").Index(i), &r.Matches[i]); !isEmptyMatch(&m) {
			rule.Matches = []model.HTTPMatch{m}
		}
		out = append(out, rule)
	}
	return out
}

// ruleBase is a rule but for what depends on its matches.
func (c *conv) ruleBase(at problem.Path, r *gatewayv1.HTTPRouteRule) model.HTTPRoute {
	var base model.HTTPRoute
	if r.Name != nil {
		base.Name = string(*r.Name)
	}
	base.Backends = c.backendRefs(at.Field("backendRefs"), r.BackendRefs)
	known := true
	for i := range r.Filters {
		known = c.routeFilter(at.Field("filters").Index(i), &r.Filters[i], &base) && known
	}
	c.rulePolicy(at, r, &base)
	switch {
	case !known:
		return model.HTTPRoute{Name: base.Name, DirectResponse: model.NoBackend(c.Meta.Kind)}
	case base.Redirect != nil:
		base.Backends = nil
	case len(base.Backends) == 0:
		base.DirectResponse = model.NoBackend(c.Meta.Kind)
	}
	return base
}

func prefixOf(m *gatewayv1.HTTPRouteMatch) string {
	if m.Path == nil || m.Path.Value == nil {
		return ""
	}
	return strings.TrimRight(*m.Path.Value, "/")
}

func isEmptyMatch(m *model.HTTPMatch) bool {
	return m.URI == nil && m.Method == nil && len(m.Headers)+len(m.QueryParams) == 0
}

func (c *conv) match(at problem.Path, m *gatewayv1.HTTPRouteMatch) model.HTTPMatch {
	var out model.HTTPMatch
	if m.Path != nil && m.Path.Value != nil {
		out.URI = c.pathMatch(at.Field("path"), m.Path)
	}
	if m.Method != nil {
		out.Method = &model.StringMatch{Kind: model.MatchExact, Value: string(*m.Method)}
	}
	out.Headers = c.headerMatches(at.Field("headers"), m.Headers)
	seen := map[string]bool{}
	for i, q := range m.QueryParams {
		if c.repeated(at.Field("queryParams").Index(i).Field("name"), seen, string(q.Name)) {
			continue
		}
		kind := gatewayv1.QueryParamMatchExact
		if q.Type != nil {
			kind = *q.Type
		}
		out.QueryParams = append(out.QueryParams, c.namedMatch(at.Field("queryParams").Index(i), string(q.Name), string(kind), q.Value))
	}
	slices.SortStableFunc(out.QueryParams, byName)
	return out
}

// repeated reports whether an earlier entry has the name, and adds it to those that were seen. By the Gateway API only the
// first one counts.
func (c *conv) repeated(at problem.Path, seen map[string]bool, name string) bool {
	if seen[name] {
		c.Warnf(code.NoEffect, at, "an earlier entry has the name %q too, so this one has no effect; remove one of the two", name)
		return true
	}
	seen[name] = true
	return false
}

func byName(a, b model.HeaderMatch) int { return strings.Compare(a.Name, b.Name) }

func (c *conv) headerMatches(at problem.Path, list []gatewayv1.HTTPHeaderMatch) []model.HeaderMatch {
	var out []model.HeaderMatch
	seen := map[string]bool{}
	for i, h := range list {
		if c.repeated(at.Index(i).Field("name"), seen, strings.ToLower(string(h.Name))) {
			continue
		}
		kind := gatewayv1.HeaderMatchExact
		if h.Type != nil {
			kind = *h.Type
		}
		out = append(out, c.namedMatch(at.Index(i), strings.ToLower(string(h.Name)), string(kind), h.Value))
	}
	slices.SortStableFunc(out, byName)
	return out
}

func (c *conv) namedMatch(at problem.Path, name, kind, value string) model.HeaderMatch {
	out := model.HeaderMatch{Name: name, StringMatch: model.StringMatch{Kind: model.MatchExact, Value: value}}
	if kind == string(gatewayv1.HeaderMatchRegularExpression) {
		c.Regex(at.Field("value"), value)
		out.Kind = model.MatchRegex
	}
	return out
}

// pathMatch is nil for what every path begins with.
func (c *conv) pathMatch(at problem.Path, m *gatewayv1.HTTPPathMatch) *model.StringMatch {
	kind := gatewayv1.PathMatchPathPrefix
	if m.Type != nil {
		kind = *m.Type
	}
	out := &model.StringMatch{Value: *m.Value}
	switch kind {
	case gatewayv1.PathMatchExact:
		out.Kind = model.MatchExact
	case gatewayv1.PathMatchRegularExpression:
		c.Regex(at.Field("value"), *m.Value)
		out.Kind = model.MatchRegex
	default:
		c.Pattern(at.Field("value"), *m.Value) // for replacePrefixMatch
		out.Kind, out.Value = model.MatchPathPrefix, strings.TrimRight(*m.Value, "/")
		if out.Value == "" {
			return nil
		}
	}
	if out.Kind != model.MatchRegex && !strings.HasPrefix(*m.Value, "/") {
		c.Errorf(code.InvalidFormat, at.Field("value"), "%q does not begin with \"/\"", *m.Value)
	}
	return out
}

func (c *conv) backendRefs(at problem.Path, list []gatewayv1.HTTPBackendRef) []model.Backend {
	var out []model.Backend
	for i := range list {
		b, weight := &list[i], int32(1)
		if b.Weight != nil {
			weight = *b.Weight
		}
		if weight == 0 {
			continue
		}
		backend := model.Backend{Weight: c.Weight(at.Index(i).Field("weight"), weight)}
		backend.Destination, backend.Grant = c.backend(at.Index(i), &b.BackendObjectReference)
		for j := range b.Filters {
			if !c.headerFilter(at.Index(i).Field("filters").Index(j), &b.Filters[j], &backend.Headers) {
				backend.Grant = neverGranted(string(b.Name))
			}
		}
		out = append(out, backend)
	}
	return out
}

// backend is a Service, or whatever has a host as Istio's Hostnames name it, with what has to be granted where it is of another namespace.
func (c *conv) backend(at problem.Path, b *gatewayv1.BackendObjectReference) (model.Destination, *model.Key) {
	ref := backendRef(at, c.Meta.Namespace, b)
	d, key := model.Destination{}, (*model.Key)(nil)
	switch {
	case ref.IsHostname():
		if d.Host = model.Host(strings.ToLower(ref.Name)); !c.CheckHost(at.Field("name"), ref.Name, false) {
			return d, neverGranted(ref.Name)
		}
		if b.Namespace != nil {
			c.Warnf(code.NoEffect, at.Field("namespace"), "has no effect on a Hostname, which is the same in all namespaces; remove it")
		}
	case ref.IsService():
		d.Host = model.ResolveHost(ref.Name, ref.Namespace, c.Domain)
		if ref.Namespace != c.Meta.Namespace {
			key = &model.Key{Kind: model.KindService, Namespace: ref.Namespace, Name: ref.Name}
		}
	default:
		c.Warnf(code.NoEffect, at.Field("kind"), "%s gets no requests: they fail; only Services do, and hosts (group %s, kind Hostname)", ref.KindText(), groupIstio)
		return d, neverGranted(ref.Name)
	}
	if b.Port == nil {
		c.Errorf(code.MissingField, at.Field("port"), "is missing; set a port of the %s", ref.Kind)
	} else if c.CheckPort(at.Field("port"), ref.Port) {
		d.Port = ref.Port
	}
	return d, key
}

// neverGranted returns a grantor that never grants: requests for the backend fail.
func neverGranted(name string) *model.Key { return &model.Key{Kind: model.KindService, Name: name} }

// compareMatches is the order of rules in the Gateway API; those that are alike stay.
func compareMatches(a, b []model.HTTPMatch) int { return specificity(a).Compare(specificity(b)) }

func specificity(list []model.HTTPMatch) model.Specificity {
	if len(list) == 0 {
		return model.Specificity{}
	}
	m := &list[0]
	return model.SpecificityOf(m.URI, m.Method, m.Headers, m.QueryParams)
}

// replacePrefix rewrites the prefix of a match; with nothing in its place no second "/" may stay.
func replacePrefix(prefix, to string) *model.Rewrite {
	to = strings.TrimSuffix(to, "/")
	if to != "" && prefix != "" {
		return &model.Rewrite{URI: to}
	}
	return &model.Rewrite{Regex: "^" + regexp.QuoteMeta(prefix) + "/?(.*)$", RegexTo: plainSubstitution(to) + `/\1`}
}

// plainSubstitution is a text with no groups of a regular expression in it.
func plainSubstitution(text string) string { return strings.ReplaceAll(text, `\`, `\\`) }
