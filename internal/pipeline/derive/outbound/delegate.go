package outbound

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// withDelegates lists a virtual service's rules. Rules of delegates replace the rules that name the delegates. A delegate
// cannot delegate further.
func (rt *Routing) withDelegates(v *model.VirtualService) []*model.HTTPRoute {
	out := make([]*model.HTTPRoute, 0, len(v.HTTP))
	for i := range v.HTTP {
		rule := &v.HTTP[i]
		if rule.Delegate == nil {
			out = append(out, rule)
			continue
		}
		child := rt.Delegate(*rule.Delegate, v)
		if child == nil {
			continue
		}
		for j := range child.HTTP {
			if merged := mergeDelegate(rule, &child.HTTP[j]); merged != nil {
				out = append(out, merged)
			}
		}
	}
	return out
}

// mergeDelegate joins a delegating rule with one rule of its delegate. Both must match. The delegate's settings precede the
// root's. nil: they cannot both match.
func mergeDelegate(root, child *model.HTTPRoute) *model.HTTPRoute {
	if child.Delegate != nil {
		return nil
	}
	out := *child
	matches, ok := mergeMatches(root.Matches, child.Matches)
	if !ok {
		return nil
	}
	out.Matches = matches
	out.Name = strings.Trim(root.Name+"-"+child.Name, "-")
	if out.Rewrite == nil {
		out.Rewrite = root.Rewrite
	}
	if out.DirectResponse == nil {
		out.DirectResponse = root.DirectResponse
	}
	if out.Timeout == nil {
		out.Timeout = root.Timeout
	}
	if out.Retry == nil {
		out.Retry = root.Retry
	}
	if out.Fault == nil {
		out.Fault = root.Fault
	}
	out.Mirrors = out.Mirrors.Or(root.Mirrors)
	if out.CORS == nil {
		out.CORS = root.CORS
	}
	if out.Headers.ChangeNone() { // otherwise none of the root's, as in Istio
		out.Headers = root.Headers
	}
	return &out
}

func mergeMatches(root, child []model.HTTPMatch) ([]model.HTTPMatch, bool) {
	if len(root) == 0 {
		return child, true
	}
	if len(child) == 0 {
		return root, true
	}
	var out []model.HTTPMatch
	for i := range child {
		had := len(out)
		for j := range root {
			if m, ok := mergeMatch(root[j], child[i]); ok {
				out = append(out, m)
			}
		}
		if len(out) == had {
			return nil, false
		}
	}
	return out, len(out) > 0
}

// mergeMatch returns a match that applies when both apply. Two different conditions on one string can be joined only if one
// implies the other.
func mergeMatch(root, child model.HTTPMatch) (model.HTTPMatch, bool) {
	out := child
	out.Name = strings.Trim(root.Name+"-"+child.Name, "-")
	parts := []struct{ root, child, into **model.StringMatch }{
		{&root.URI, &child.URI, &out.URI}, {&root.Scheme, &child.Scheme, &out.Scheme},
		{&root.Method, &child.Method, &out.Method}, {&root.Authority, &child.Authority, &out.Authority},
	}
	for _, p := range parts {
		m, ok := narrower(*p.root, *p.child)
		if !ok {
			return out, false
		}
		*p.into = m
	}
	if root.Port != 0 && child.Port != 0 && root.Port != child.Port ||
		root.SourceNamespace != "" && root.SourceNamespace != child.SourceNamespace ||
		root.IgnoreURICase != child.IgnoreURICase {
		return out, false
	}
	out.Port = max(root.Port, child.Port)
	var headers, without, params bool
	out.Headers, headers = mergeHeaders(root.Headers, child.Headers)
	out.WithoutHeaders, without = mergeHeaders(root.WithoutHeaders, child.WithoutHeaders)
	out.QueryParams, params = mergeHeaders(root.QueryParams, child.QueryParams)
	out.StatPrefix = cmp.Or(child.StatPrefix, root.StatPrefix)
	var labels, gateways bool
	out.SourceLabels, labels = mergeLabels(root.SourceLabels, child.SourceLabels)
	out.Gateways, gateways = mergeGateways(root.Gateways, child.Gateways)
	return out, headers && without && params && labels && gateways
}

// mergeGateways returns those that both name; an empty list means all. ok is false if there are none.
func mergeGateways(a, b []string) ([]string, bool) {
	if len(a) == 0 || len(b) == 0 {
		return append(slices.Clone(a), b...), true
	}
	return b, !slices.ContainsFunc(b, func(g string) bool { return !slices.Contains(a, g) })
}

func mergeLabels(a, b map[string]string) (map[string]string, bool) {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	for k, v := range b {
		if have, ok := out[k]; ok && have != v {
			return nil, false
		}
		out[k] = v
	}
	return out, true
}

// mergeHeaders joins matches of headers. For a header of both, the delegate's must be narrower. As in Istio this is so for
// withoutHeaders, too, although a narrower match excludes fewer requests.
func mergeHeaders(root, child []model.HeaderMatch) ([]model.HeaderMatch, bool) {
	var out []model.HeaderMatch
	for _, r := range root {
		i := slices.IndexFunc(child, func(c model.HeaderMatch) bool { return c.Name == r.Name })
		if i < 0 {
			out = append(out, r)
			continue
		}
		if _, ok := narrower(&r.StringMatch, &child[i].StringMatch); !ok {
			return nil, false
		}
	}
	return append(out, child...), true
}

// narrower returns the delegate's match, or the root's if it has none. As Istio documents, the delegate's must be a part of
// the root's, which for regular expressions is not known.
func narrower(root, child *model.StringMatch) (*model.StringMatch, bool) {
	switch {
	case root == nil:
		return child, true
	case child == nil:
		return root, true
	case root.Kind == model.MatchExact && child.Kind == model.MatchExact:
		return child, root.Value == child.Value
	case root.Kind == model.MatchPrefix && child.Kind <= model.MatchPrefix:
		return child, strings.HasPrefix(child.Value, root.Value)
	}
	return nil, false
}
