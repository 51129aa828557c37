package analyze

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/config/spelling"
	"github.com/moonsail/moonsail/internal/model"
)

// apiEnum is a field of the Gateway API with a list of values. Its Go types do not have them: API servers check them by the
// schema of the kind.
type apiEnum struct {
	field  string // [] stands for each element
	values []string
}

var (
	matchTypes   = []string{"Exact", "RegularExpression"}
	rewriteTypes = []string{"ReplaceFullPath", "ReplacePrefixMatch"}
	apiEnums     = []apiEnum{
		{"spec.listeners[].allowedRoutes.namespaces.from", []string{"All", "Selector", "Same", "None"}},
		{"spec.listeners[].tls.mode", []string{"Terminate", "Passthrough"}},
		{"spec.rules[].matches[].path.type", pathTypes},
		{"spec.rules[].matches[].headers[].type", matchTypes},
		{"spec.rules[].matches[].queryParams[].type", matchTypes},
		{"spec.rules[].matches[].method", []string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"}},
		{"spec.rules[].filters[].type", filterTypes()},
		{"spec.rules[].backendRefs[].filters[].type", filterTypes()},
		{"spec.rules[].filters[].urlRewrite.path.type", rewriteTypes},
		{"spec.rules[].filters[].requestRedirect.path.type", rewriteTypes},
	}
)

// filterFields are the fields that filters of a type need.
var filterFields = map[string]string{
	"RequestHeaderModifier": "requestHeaderModifier", "ResponseHeaderModifier": "responseHeaderModifier", "RequestMirror": "requestMirror",
	"RequestRedirect": "requestRedirect", "URLRewrite": "urlRewrite", "CORS": "cors", "ExternalAuth": "externalAuth", "ExtensionRef": "extensionRef",
}

func filterTypes() []string {
	var out []string
	for t := range filterFields {
		out = append(out, t)
	}
	slices.Sort(out)
	return out
}

// values reports values that a field does not take. Kubernetes refuses the object.
func (c apiChecks) values(k model.Key) {
	var top map[string]any
	if json.Unmarshal(c.raw[k], &top) != nil {
		return
	}
	for _, e := range apiEnums {
		if k.Kind == model.KindGRPCRoute && strings.HasSuffix(e.field, "].method") {
			continue // an object
		}
		eachValue(top, "", strings.Split(e.field, "."), func(at problem.Path, value any) {
			if text, _ := value.(string); text != "" && !slices.Contains(e.values, text) {
				meant, hint := meantValue(text, e.values), ""
				if meant != "" {
					hint = fmt.Sprintf("; did you mean %q?", meant)
				}
				c.errorf(code.UnknownValue, k, string(at), "%q is not one of %s, so Kubernetes refuses the object%s", text, strings.Join(e.values, ", "), hint).Set(meant)
			}
		})
	}
	eachValue(top, "", []string{"spec", "rules[]", "filters[]"}, func(at problem.Path, value any) { c.filter(k, at, value) })
	eachValue(top, "", []string{"spec", "rules[]"}, func(at problem.Path, value any) { c.redirectedBackends(k, at, value) })
}

// meantValue returns the value that was probably meant: one that is spelt alike, or the only one that contains the text, as
// PathPrefix does Prefix; empty: none.
func meantValue(text string, values []string) string {
	if near := spelling.Nearest(text, values); near != "" {
		return near
	}
	lower := strings.ToLower(text)
	if lower == "regex" {
		lower = "regular"
	}
	meant := ""
	for _, v := range values {
		switch {
		case !strings.Contains(strings.ToLower(v), lower):
		case meant != "":
			return ""
		default:
			meant = v
		}
	}
	return meant
}

// filter reports a filter without the field that its type needs, or without a type.
func (c apiChecks) filter(k model.Key, at problem.Path, value any) {
	filter, _ := value.(map[string]any)
	kind, _ := filter["type"].(string)
	if kind == "" && len(filter) > 0 {
		c.errorf(code.MissingField, k, string(at.Field("type")), "is missing, so Kubernetes refuses the object; write one of %s", strings.Join(filterTypes(), ", "))
		return
	}
	if field := filterFields[kind]; field != "" && filter[field] == nil {
		c.errorf(code.MissingField, k, string(at.Field(field)), "is missing, which a filter of type %s needs, so Kubernetes refuses the object; write it, or change the type", kind)
	}
}

// redirectedBackends reports backends of a rule that redirects.
func (c apiChecks) redirectedBackends(k model.Key, at problem.Path, value any) {
	rule, _ := value.(map[string]any)
	backends, _ := rule["backendRefs"].([]any)
	filters, _ := rule["filters"].([]any)
	for _, f := range filters {
		if filter, _ := f.(map[string]any); len(backends) > 0 && filter["type"] == "RequestRedirect" {
			c.errorf(code.ExclusiveFields, k, string(at.Field("backendRefs")), "cannot be combined with a filter of type RequestRedirect, so Kubernetes refuses the object; remove one of the two")
			return
		}
	}
}

// eachValue calls visit for each value at a path.
func eachValue(value any, at problem.Path, path []string, visit func(problem.Path, any)) {
	if len(path) == 0 {
		visit(at, value)
		return
	}
	name, each := strings.CutSuffix(path[0], "[]")
	object, _ := value.(map[string]any)
	inner, found := object[name]
	if !found {
		return
	}
	at = at.Field(name)
	if !each {
		eachValue(inner, at, path[1:], visit)
		return
	}
	list, _ := inner.([]any)
	for i, e := range list {
		eachValue(e, at.Index(i), path[1:], visit)
	}
}

// parents reports a route without parents, and parents of unknown kinds.
func (c apiChecks) parents(k model.Key) {
	var route struct {
		Spec struct {
			ParentRefs []struct{ Group, Kind *string } `json:"parentRefs"`
		} `json:"spec"`
	}
	if json.Unmarshal(c.raw[k], &route) != nil {
		return
	}
	if len(route.Spec.ParentRefs) == 0 {
		c.warnf(code.MissingField, k, "spec.parentRefs", "are missing, so the route has no effect; name a Gateway, or a Service for calls of sidecars")
	}
	kinds := []string{"Gateway", "ListenerSet", "Service", "ServiceEntry"}
	for i, p := range route.Spec.ParentRefs {
		if p.Kind != nil && !slices.Contains(kinds, *p.Kind) && (p.Group == nil || strings.HasSuffix(*p.Group, "gateway.networking.k8s.io")) {
			c.warnf(code.UnknownValue, k, fmt.Sprintf("spec.parentRefs[%d].kind", i), "%s is not a kind that routes have as a parent, so the route has no effect there%s", *p.Kind, spelling.DidYouMean(*p.Kind, kinds))
		}
	}
}
