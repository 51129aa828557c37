package istio

import (
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/model"
)

func (c *routeConv) httpMatch(at path, m *networking.HTTPMatchRequest) model.HTTPMatch {
	out := model.HTTPMatch{
		Name:            m.Name,
		URI:             c.stringMatch(at.f("uri"), m.Uri, true),
		IgnoreURICase:   m.IgnoreUriCase,
		Scheme:          c.stringMatch(at.f("scheme"), m.Scheme, false),
		Method:          c.stringMatch(at.f("method"), m.Method, false),
		Authority:       c.stringMatch(at.f("authority"), m.Authority, false),
		Headers:         c.headerMatches(at.f("headers"), m.Headers, true),
		WithoutHeaders:  c.headerMatches(at.f("withoutHeaders"), m.WithoutHeaders, true),
		QueryParams:     c.headerMatches(at.f("queryParams"), m.QueryParams, false),
		Port:            m.Port,
		SourceLabels:    m.SourceLabels,
		SourceNamespace: m.SourceNamespace,
		StatPrefix:      m.StatPrefix,
		Gateways:        c.gateways(at.f("gateways"), m.Gateways),
	}
	if m.Port != 0 {
		c.checkPort(at.f("port"), m.Port)
	}
	c.source(at, m.SourceLabels, m.SourceNamespace)
	return out
}

// source checks the match of a client's workload.
func (c *conv) source(at path, labels map[string]string, ns string) {
	c.labels(at.f("sourceLabels"), labels)
	if ns != "" && !isLabel(ns) {
		c.errorf(at.f("sourceNamespace"), "%q is not a namespace", ns)
	}
}

// stringMatch is nil where nothing is said. Only the URI may have an empty prefix.
func (c *routeConv) stringMatch(at path, m *networking.StringMatch, emptyPrefix bool) *model.StringMatch {
	if m == nil || m.MatchType == nil {
		return nil
	}
	out := c.match(at, m)
	if out.Kind == model.MatchPrefix && out.Value == "" && !emptyPrefix {
		c.errorf(at.f("prefix"), "is empty, which matches everything; leave the match out, or give a prefix")
	}
	return &out
}

func (c *conv) match(at path, m *networking.StringMatch) model.StringMatch {
	switch v := m.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return model.StringMatch{Kind: model.MatchExact, Value: v.Exact}
	case *networking.StringMatch_Prefix:
		return model.StringMatch{Kind: model.MatchPrefix, Value: v.Prefix}
	case *networking.StringMatch_Regex:
		if v.Regex != "*" {
			c.regex(at.f("regex"), v.Regex)
			return model.StringMatch{Kind: model.MatchRegex, Value: v.Regex}
		}
	}
	return model.StringMatch{Kind: model.MatchPresent} // "{}", and "*", which is no expression
}

func (c *routeConv) headerMatches(at path, list map[string]*networking.StringMatch, header bool) []model.HeaderMatch {
	var out []model.HeaderMatch
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at := at.k(name)
		if header {
			c.headerMatchName(at, name)
		} else if name == "" {
			c.errorf(at, "a query parameter needs a name")
		}
		m := c.match(at, list[name])
		if m.Kind == model.MatchPrefix && m.Value == "" {
			c.errorf(at.f("prefix"), "is empty; write {} to match any value")
		}
		out = append(out, model.HeaderMatch{Name: name, StringMatch: m})
	}
	return out
}

func (c *routeConv) headerMatchName(at path, name string) {
	switch {
	case model.IsClaim(name) && !c.gateway:
		c.errorf(at, "claims of tokens can be matched at gateways only; bind the VirtualService to one and not to \"mesh\", or match a header")
	case model.IsClaim(name):
		if model.ClaimNames(name) == nil {
			c.errorf(at, "%q names no claim; write %s[NAME], and [NAME][INNER] for what is within another", name, model.ClaimPrefix)
		}
	case slices.Contains([]string{":method", ":scheme", ":authority", ":path"}, name):
	default:
		c.headerName(at, name)
	}
}
