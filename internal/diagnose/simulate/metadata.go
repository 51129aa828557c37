package simulate

import (
	"fmt"
	"regexp"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	uritemplatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// leave writes metadata for later filters.
func (r *request) leave(filter, key string, value any) {
	if r.metadata == nil {
		r.metadata = map[string]map[string]any{}
	}
	if r.metadata[filter] == nil {
		r.metadata[filter] = map[string]any{}
	}
	r.metadata[filter][key] = value
}

// matchesMetadata compares metadata that filters have set: strings, numbers, booleans, lists and maps. A
// missing value matches nothing, and so matches what is inverted.
func (r *request) matchesMetadata(m *matcherv3.MetadataMatcher) (bool, error) {
	ok, err := r.findsMetadata(m)
	return ok != m.GetInvert(), err
}

func (r *request) findsMetadata(m *matcherv3.MetadataMatcher) (bool, error) {
	var value any = r.metadata[m.GetFilter()]
	for _, s := range m.GetPath() {
		fields, ok := value.(map[string]any)
		if !ok {
			return false, nil
		}
		if value, ok = fields[s.GetKey()]; !ok {
			return false, nil
		}
	}
	return matchesAny(m.GetValue(), value)
}

func matchesAny(m *matcherv3.ValueMatcher, value any) (bool, error) {
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.ValueMatcher_StringMatch:
		s, ok := value.(string)
		if !ok {
			return false, nil
		}
		return matchesString(p.StringMatch, s)
	case *matcherv3.ValueMatcher_PresentMatch:
		return p.PresentMatch, nil
	case *matcherv3.ValueMatcher_BoolMatch:
		b, ok := value.(bool)
		return ok && b == p.BoolMatch, nil
	case *matcherv3.ValueMatcher_OrMatch:
		return some(p.OrMatch.GetValueMatchers(), func(m *matcherv3.ValueMatcher) (bool, error) { return matchesAny(m, value) })
	case *matcherv3.ValueMatcher_ListMatch:
		list, _ := value.([]any)
		return some(list, func(e any) (bool, error) { return matchesAny(p.ListMatch.GetOneOf(), e) })
	default:
		return false, fmt.Errorf("value match %T is unknown to the simulator", p)
	}
}

// segment matches the characters that "*" stands for in a template.
const segment = `a-zA-Z0-9\-._~%!$&'()*+,;:@=`

// matchesTemplate compares a path with a template: "*" is one segment, "**" any number of them.
func matchesTemplate(packed *corev3.TypedExtensionConfig, path string) (bool, error) {
	t := &uritemplatev3.UriTemplateMatchConfig{}
	if err := packed.GetTypedConfig().UnmarshalTo(t); err != nil {
		return false, fmt.Errorf("uri template: %w", err)
	}
	var expr strings.Builder
	for i, part := range strings.Split(t.GetPathTemplate(), "/") {
		if i > 0 {
			expr.WriteString("/")
		}
		switch part {
		case "*":
			expr.WriteString("[" + segment + "]+")
		case "**":
			expr.WriteString("[" + segment + "/]*")
		default:
			expr.WriteString(regexp.QuoteMeta(part))
		}
	}
	return fullMatch(expr.String(), path)
}

// Istio's metadata of routes and clusters names the objects that they were made from.
const (
	istioMetadata = "istio"
	configField   = "config"      // the path of a VirtualService or DestinationRule at the API server
	tlsField      = "backend_tls" // the path of a BackendTLSPolicy
)

// origin returns the path of the object in Istio's metadata; "" if there is none.
func origin(m *corev3.Metadata) string { return originIn(m, configField) }

func originIn(m *corev3.Metadata, field string) string {
	return m.GetFilterMetadata()[istioMetadata].GetFields()[field].GetStringValue()
}

// serviceHost returns the host of the service that a cluster leads to, by Istio's metadata.
func serviceHost(c *clusterv3.Cluster) string {
	list := c.GetMetadata().GetFilterMetadata()[istioMetadata].GetFields()["services"].GetListValue().GetValues()
	if len(list) == 0 {
		return ""
	}
	return list[0].GetStructValue().GetFields()["host"].GetStringValue()
}
