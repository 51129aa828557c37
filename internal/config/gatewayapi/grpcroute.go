package gatewayapi

import (
	"regexp"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// GRPCRoute decodes a GRPCRoute of the Gateway API as HTTPRoute does. Calls are requests to /SERVICE/METHOD.
func GRPCRoute(in convert.Cluster, o *gatewayv1.GRPCRoute) (*model.VirtualService, problem.List) {
	c, rules := start(in, model.KindGRPCRoute, &o.ObjectMeta), grpcRules(o.Spec.Rules)
	v := c.route(problem.Path("spec"), &o.Spec.CommonRouteSpec, o.Spec.Hostnames)
	c.rules(v, len(rules), func(at problem.Path, i int) []model.HTTPRoute {
		return c.grpcMatches(at.Field("matches"), c.ruleBase(at, &rules[i]), o.Spec.Rules[i].Matches)
	})
	return v, c.Problems
}

// grpcMatches makes a rule for each match.
func (c *conv) grpcMatches(at problem.Path, base model.HTTPRoute, list []gatewayv1.GRPCRouteMatch) []model.HTTPRoute {
	if len(list) == 0 {
		return []model.HTTPRoute{base}
	}
	var out []model.HTTPRoute
	for i := range list {
		rule := base
		if m := c.grpcMatch(at.Index(i), &list[i]); !isEmptyMatch(&m) {
			rule.Matches = []model.HTTPMatch{m}
		}
		out = append(out, rule)
	}
	return out
}

func (c *conv) grpcMatch(at problem.Path, m *gatewayv1.GRPCRouteMatch) model.HTTPMatch {
	var out model.HTTPMatch
	if m.Method != nil {
		out.URI = c.methodMatch(at.Field("method"), m.Method)
	}
	var headers []gatewayv1.HTTPHeaderMatch
	for _, h := range m.Headers {
		headers = append(headers, gatewayv1.HTTPHeaderMatch{Type: (*gatewayv1.HeaderMatchType)(h.Type), Name: gatewayv1.HTTPHeaderName(h.Name), Value: h.Value})
	}
	out.Headers = c.headerMatches(at.Field("headers"), headers)
	return out
}

// anyName is a service or a method where none is named.
const anyName = "[^/]+"

// methodMatch is nil for all methods of all services.
func (c *conv) methodMatch(at problem.Path, m *gatewayv1.GRPCMethodMatch) *model.StringMatch {
	service, method := "", ""
	if m.Service != nil {
		service = *m.Service
	}
	if m.Method != nil {
		method = *m.Method
	}
	switch {
	case service == "" && method == "":
		return nil
	case m.Type != nil && *m.Type == gatewayv1.GRPCMethodMatchRegularExpression:
		match := methodRegex(service, method)
		serviceOK, methodOK := c.nameRegex(at.Field("service"), service), c.nameRegex(at.Field("method"), method)
		if serviceOK && methodOK {
			c.RegexProgram(at, match.Value)
		}
		return match
	case service == "":
		c.Pattern(at.Field("method"), method)
		return methodRegex("", regexp.QuoteMeta(method))
	case method == "":
		return &model.StringMatch{Kind: model.MatchPathPrefix, Value: "/" + service}
	}
	return &model.StringMatch{Kind: model.MatchExact, Value: "/" + service + "/" + method}
}

func (c *conv) nameRegex(at problem.Path, re string) bool { return re == "" || c.Regex(at, re) }

func methodRegex(service, method string) *model.StringMatch {
	part := func(s string) string {
		if s == "" {
			return anyName
		}
		return "(?:" + s + ")"
	}
	return &model.StringMatch{Kind: model.MatchRegex, Value: "/" + part(service) + "/" + part(method)}
}

// grpcRules are rules as those of HTTPRoutes, without matches.
func grpcRules(list []gatewayv1.GRPCRouteRule) []gatewayv1.HTTPRouteRule {
	out := make([]gatewayv1.HTTPRouteRule, 0, len(list))
	for i := range list {
		r := &list[i]
		rule := gatewayv1.HTTPRouteRule{Name: r.Name, Filters: grpcFilters(r.Filters), SessionPersistence: r.SessionPersistence}
		for _, b := range r.BackendRefs {
			rule.BackendRefs = append(rule.BackendRefs, gatewayv1.HTTPBackendRef{BackendRef: b.BackendRef, Filters: grpcFilters(b.Filters)})
		}
		out = append(out, rule)
	}
	return out
}

func grpcFilters(list []gatewayv1.GRPCRouteFilter) []gatewayv1.HTTPRouteFilter {
	var out []gatewayv1.HTTPRouteFilter
	for _, f := range list {
		out = append(out, gatewayv1.HTTPRouteFilter{
			Type: gatewayv1.HTTPRouteFilterType(f.Type), RequestHeaderModifier: f.RequestHeaderModifier,
			ResponseHeaderModifier: f.ResponseHeaderModifier, RequestMirror: f.RequestMirror, ExtensionRef: f.ExtensionRef,
		})
	}
	return out
}
