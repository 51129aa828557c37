package istio

import (
	"maps"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

func (c *routeConv) httpMatch(at problem.Path, m *networking.HTTPMatchRequest) model.HTTPMatch {
	out := model.HTTPMatch{
		Name:            m.Name,
		URI:             c.stringMatch(at.Field("uri"), m.Uri, true),
		IgnoreURICase:   m.IgnoreUriCase,
		Scheme:          c.stringMatch(at.Field("scheme"), m.Scheme, false),
		Method:          c.stringMatch(at.Field("method"), m.Method, false),
		Authority:       c.stringMatch(at.Field("authority"), m.Authority, false),
		Headers:         c.headerMatches(at.Field("headers"), m.Headers, true),
		WithoutHeaders:  c.headerMatches(at.Field("withoutHeaders"), m.WithoutHeaders, true),
		QueryParams:     c.headerMatches(at.Field("queryParams"), m.QueryParams, false),
		Port:            m.Port,
		SourceLabels:    m.SourceLabels,
		SourceNamespace: m.SourceNamespace,
		StatPrefix:      m.StatPrefix,
		Gateways:        virtualServiceConv{c.Converter}.gateways(at.Field("gateways"), m.Gateways),
	}
	if m.Port != 0 {
		c.CheckPort(at.Field("port"), m.Port)
	}
	virtualServiceConv{c.Converter}.source(at, m.SourceLabels, m.SourceNamespace)
	return out
}

// source checks the match of a client's workload.
func (c virtualServiceConv) source(at problem.Path, labels map[string]string, ns string) {
	c.Labels(at.Field("sourceLabels"), labels)
	if ns != "" && !convert.IsLabel(ns) {
		c.Errorf(at.Field("sourceNamespace"), "%q is not a namespace", ns)
	}
}

// stringMatch is nil where nothing is said. Only the URI may have an empty prefix.
func (c *routeConv) stringMatch(at problem.Path, m *networking.StringMatch, emptyPrefix bool) *model.StringMatch {
	if m == nil || m.MatchType == nil {
		return nil
	}
	out := virtualServiceConv{c.Converter}.match(at, m)
	if out.Kind == model.MatchPrefix && out.Value == "" && !emptyPrefix {
		c.Errorf(at.Field("prefix"), "is empty, which matches everything; leave the match out, or give a prefix")
	}
	return &out
}

func (c virtualServiceConv) match(at problem.Path, m *networking.StringMatch) model.StringMatch {
	switch v := m.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return model.StringMatch{Kind: model.MatchExact, Value: v.Exact}
	case *networking.StringMatch_Prefix:
		return model.StringMatch{Kind: model.MatchPrefix, Value: v.Prefix}
	case *networking.StringMatch_Regex:
		if v.Regex != "*" {
			c.Regex(at.Field("regex"), v.Regex)
			return model.StringMatch{Kind: model.MatchRegex, Value: v.Regex}
		}
	}
	return model.StringMatch{Kind: model.MatchPresent} // "{}", and "*", which is not a regular expression
}

func (c *routeConv) headerMatches(at problem.Path, list map[string]*networking.StringMatch, header bool) []model.HeaderMatch {
	var out []model.HeaderMatch
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at := at.Key(name)
		if header {
			c.headerMatchName(at, name)
		} else if name == "" {
			c.Errorf(at, "a query parameter needs a name")
		}
		m := virtualServiceConv{c.Converter}.match(at, list[name])
		if m.Kind == model.MatchPrefix && m.Value == "" {
			c.Errorf(at.Field("prefix"), "is empty; write {} to match any value")
		}
		out = append(out, model.HeaderMatch{Name: name, StringMatch: m})
	}
	return out
}

func (c *routeConv) headerMatchName(at problem.Path, name string) {
	switch {
	case model.IsClaim(name) && !c.gateway:
		c.Errorf(at, "claims of tokens can be matched at gateways only; bind the VirtualService to one and not to \"mesh\", or match a header")
	case model.IsClaim(name):
		if model.ClaimNames(name) == nil {
			c.Errorf(at, "%q names no claim; write %s[NAME], and [NAME][INNER] for what is within another", name, model.ClaimPrefix)
		}
	case slices.Contains([]string{":method", ":scheme", ":authority", ":path"}, name):
	default:
		c.HeaderName(at, name)
	}
}
