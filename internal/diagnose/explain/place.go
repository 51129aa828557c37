package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/diagnose/simulate"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// placeOf returns the file and line of a field, else of the object; else the source's name.
func (x *Explainer) placeOf(m *model.Meta, field string) string {
	if x.Place != nil && field != "" {
		if at := x.Place(m, field); at != "" {
			return at
		}
	}
	return m.Origin
}

// routeOf returns the rule of a VirtualService that a request found; -1: it is not known.
func routeOf(v *model.VirtualService, call *simulate.Call, r *simulate.Result) int {
	if v.Kind != model.KindVirtualService {
		return -1 // rules of the Gateway API are sorted by their matches
	}
	var found []int
	for i := range v.HTTP {
		if mayBe(&v.HTTP[i], r) {
			found = append(found, i)
		}
	}
	for n, i := range found {
		matches, known := matchesRequest(&v.HTTP[i], call)
		if matches || known && n == len(found)-1 {
			return i
		}
		if !known {
			if len(found) == 1 {
				return i
			}
			return -1
		}
	}
	return -1
}

// mayBe reports whether a result may be that of a rule: by the rule's name and destinations.
func mayBe(rule *model.HTTPRoute, r *simulate.Result) bool {
	names := []string{rule.Name}
	for i := range rule.Matches {
		names = append(names, strings.Trim(rule.Name+"."+rule.Matches[i].Name, "."))
	}
	if !slices.Contains(names, r.Route) || rule.Delegate != nil || len(rule.Backends) == 0 != (len(r.Upstreams) == 0) {
		return false
	}
	for i := range r.Upstreams {
		c, ok := resourcename.ParseCluster(r.Upstreams[i].Cluster)
		if ok && !slices.ContainsFunc(rule.Backends, func(b model.Backend) bool { return b.Subset == c.Subset && (b.Port == 0 || b.Port == c.Port) }) {
			return false
		}
	}
	return true
}

// matchesRequest reports whether a rule matches a request by its path and method. known is not set if other conditions decide.
func matchesRequest(rule *model.HTTPRoute, call *simulate.Call) (matches, known bool) {
	known = true
	for i := range rule.Matches {
		m := &rule.Matches[i]
		path, _, _ := strings.Cut(call.Path, "?")
		byPath, pathKnown := matchesText(m.URI, path, m.IgnoreURICase)
		byMethod, methodKnown := matchesText(m.Method, call.Method, false)
		switch other := m.Scheme != nil || m.Authority != nil || len(m.Headers)+len(m.WithoutHeaders)+len(m.QueryParams)+len(m.SourceLabels)+len(m.Gateways) > 0 ||
			m.Port != 0 || m.SourceNamespace != ""; {
		case pathKnown && !byPath || methodKnown && !byMethod:
		case other || !pathKnown || !methodKnown:
			known = false
		default:
			return true, true
		}
	}
	return len(rule.Matches) == 0, known
}

// matchesText compares a text; nil matches everything. known is not set for regular expressions.
func matchesText(m *model.StringMatch, text string, fold bool) (matches, known bool) {
	if m == nil {
		return true, true
	}
	value := m.Value
	if fold {
		value, text = strings.ToLower(value), strings.ToLower(text)
	}
	switch m.Kind {
	case model.MatchExact:
		return text == value, true
	case model.MatchPrefix:
		return strings.HasPrefix(text, value), true
	}
	return false, false
}

// fieldOfRoute is the field of a rule of requests.
func fieldOfRoute(index int) string { return fmt.Sprintf("spec.http[%d]", index) }

// short removes "spec." from a field.
func short(field string) string { return strings.TrimPrefix(field, "spec.") }
