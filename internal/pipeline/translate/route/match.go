package route

import (
	"errors"
	"fmt"
	"regexp"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"github.com/moonsail/moonsail/internal/config/envoyformat"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/pipeline/translate/security"
)

// everything matches all requests.
var everything = &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}

// routeMatch translates the conditions of a route; nil matches everything.
func routeMatch(m *ir.Match) (*routev3.RouteMatch, error) {
	if m == nil {
		return everything, nil
	}
	out := &routev3.RouteMatch{}
	if err := setPath(m.URI, out); err != nil {
		return nil, err
	}
	if m.IgnoreURICase {
		out.CaseSensitive = envoyproto.False
	}
	if err := addHeaders(m, out); err != nil {
		return nil, err
	}
	for i := range m.QueryParams {
		q, err := queryMatcher(&m.QueryParams[i])
		if err != nil {
			return nil, fmt.Errorf("queryParams[%s]: %w", m.QueryParams[i].Name, err)
		}
		out.QueryParameters = append(out.QueryParameters, q)
	}
	return out, nil
}

// setPath translates the match of the path. A prefix of a VirtualService is compared by characters: "/a" matches
// "/ab".
func setPath(uri *model.StringMatch, out *routev3.RouteMatch) error {
	out.PathSpecifier = everything.PathSpecifier
	if uri == nil {
		return nil
	}
	switch uri.Kind {
	case model.MatchExact:
		out.PathSpecifier = &routev3.RouteMatch_Path{Path: uri.Value}
	case model.MatchPrefix:
		out.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: uri.Value}
	case model.MatchPathPrefix:
		out.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: uri.Value}
	case model.MatchRegex:
		re, err := regex(uri.Value)
		if err != nil {
			return fmt.Errorf("uri: %w", err)
		}
		out.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: re}
	}
	return nil
}

// addHeaders adds matches of headers, which are sorted by name, and of HTTP/2's pseudo-headers.
func addHeaders(m *ir.Match, out *routev3.RouteMatch) error {
	for i := range m.Headers {
		if err := addHeader(&m.Headers[i], false, out); err != nil {
			return fmt.Errorf("headers[%s]: %w", m.Headers[i].Name, err)
		}
	}
	for i := range m.WithoutHeaders {
		if err := addHeader(&m.WithoutHeaders[i], true, out); err != nil {
			return fmt.Errorf("withoutHeaders[%s]: %w", m.WithoutHeaders[i].Name, err)
		}
	}
	for _, p := range []struct {
		field, header string
		match         *model.StringMatch
	}{{"method", ":method", m.Method}, {"authority", ":authority", m.Authority}, {"scheme", ":scheme", m.Scheme}} {
		if p.match == nil {
			continue
		}
		h, err := headerMatcher(p.header, p.match)
		if err != nil {
			return fmt.Errorf("%s: %w", p.field, err)
		}
		out.Headers = append(out.Headers, h)
	}
	return nil
}

// addHeader adds the match of a header, or of a claim of a token, which JWTFilter has stored in metadata. without
// inverts the match. A request without a token has no claim.
func addHeader(m *model.HeaderMatch, without bool, out *routev3.RouteMatch) error {
	if names := model.ClaimNames(m.Name); names != nil {
		s, err := stringMatcher(&m.StringMatch)
		if err != nil {
			return err
		}
		c := security.ClaimMatcher(names, s)
		c.Invert = without
		out.DynamicMetadata = append(out.DynamicMetadata, c)
		return nil
	}
	h, err := headerMatcher(m.Name, &m.StringMatch)
	if err != nil {
		return err
	}
	h.InvertMatch = without
	// A missing header does not have the value.
	h.TreatMissingHeaderAsEmpty = without && !h.GetPresentMatch()
	out.Headers = append(out.Headers, h)
	return nil
}

func headerMatcher(name string, m *model.StringMatch) (*routev3.HeaderMatcher, error) {
	s, err := stringMatcher(m)
	if err != nil {
		return nil, err
	}
	out := &routev3.HeaderMatcher{Name: name}
	if s == nil {
		out.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}
	} else {
		out.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: s}
	}
	return out, nil
}

func queryMatcher(m *model.HeaderMatch) (*routev3.QueryParameterMatcher, error) {
	s, err := stringMatcher(&m.StringMatch)
	if err != nil {
		return nil, err
	}
	out := &routev3.QueryParameterMatcher{Name: m.Name}
	if s == nil {
		out.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: true}
	} else {
		out.QueryParameterMatchSpecifier = &routev3.QueryParameterMatcher_StringMatch{StringMatch: s}
	}
	return out, nil
}

// stringMatcher returns nil if any value matches.
func stringMatcher(m *model.StringMatch) (*matcherv3.StringMatcher, error) {
	switch m.Kind {
	case model.MatchExact:
		return envoyproto.MatchExact(m.Value), nil
	case model.MatchPrefix:
		if m.Value == "" {
			return nil, nil
		}
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: m.Value}}, nil
	case model.MatchRegex:
		re, err := regex(m.Value)
		if err != nil {
			return nil, err
		}
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: re}}, nil
	}
	return nil, nil
}

// regex checks that Envoy takes an expression. An expression that is too large would freeze the routes of everyone
// who shares the proxy.
func regex(text string) (*matcherv3.RegexMatcher, error) {
	if text == "" {
		return nil, errors.New("empty regular expression: leave it out, or write .*")
	}
	if err := envoyformat.CheckRegex(text); err != nil {
		return nil, fmt.Errorf("invalid RE2 regular expression %q: %w", text, err)
	}
	return &matcherv3.RegexMatcher{Regex: text}, nil
}

// substitution replaces what text matches. In the replacement, \1 to \9 are groups and \0 is the whole match.
func substitution(text, to string) (*matcherv3.RegexMatchAndSubstitute, error) {
	pattern, err := regex(text)
	if err != nil {
		return nil, err
	}
	if err := envoyformat.CheckGroups(to, regexp.MustCompile(text).NumSubexp()); err != nil {
		return nil, err
	}
	return &matcherv3.RegexMatchAndSubstitute{Pattern: pattern, Substitution: to}, nil
}
