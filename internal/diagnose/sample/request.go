// Package sample makes requests and texts that the matchers of routes and policies match. Packages preview and compare share it.
package sample

import (
	"maps"
	"regexp/syntax"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// Request is the part of a call that routes and policies match.
type Request struct {
	Method, Path string
	Host         string // the authority; empty: any
	Scheme       string // http or https; empty: any
	Headers      map[string]string
}

// Equal reports whether two requests are the same.
func (r Request) Equal(o Request) bool {
	return r.Method == o.Method && r.Path == o.Path && r.Host == o.Host && r.Scheme == o.Scheme && maps.Equal(r.Headers, o.Headers)
}

// RequestFor returns a request that a route matches; false: it could not find one.
func RequestFor(m *routev3.RouteMatch) (Request, bool) {
	r := Request{}
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		r.Path = p.Prefix
	case *routev3.RouteMatch_Path:
		r.Path = p.Path
	case *routev3.RouteMatch_PathSeparatedPrefix:
		r.Path = p.PathSeparatedPrefix
	case *routev3.RouteMatch_SafeRegex:
		text, ok := Regex(p.SafeRegex.GetRegex())
		if !ok {
			return r, false
		}
		r.Path = text
	case *routev3.RouteMatch_ConnectMatcher_:
		return r, false
	default:
		r.Path = "/"
	}
	if !strings.HasPrefix(r.Path, "/") {
		r.Path = "/" + r.Path
	}
	for _, h := range m.GetHeaders() {
		if h.GetInvertMatch() {
			continue
		}
		value, ok := "any", true
		if s := h.GetStringMatch(); s != nil {
			value, ok = Text(s)
		}
		if !ok || !r.set(h.GetName(), value) {
			return r, false
		}
	}
	return r.withQuery(m.GetQueryParameters())
}

// set sets a header; false: it is a pseudo header that a call does not choose.
func (r *Request) set(name, value string) bool {
	switch {
	case name == ":method":
		r.Method = value
	case name == ":authority":
		r.Host = value
	case name == ":scheme":
		r.Scheme = value
	case strings.HasPrefix(name, ":"):
		return false
	default:
		if r.Headers == nil {
			r.Headers = map[string]string{}
		}
		r.Headers[name] = value
	}
	return true
}

func (r Request) withQuery(params []*routev3.QueryParameterMatcher) (Request, bool) {
	var query []string
	for _, q := range params {
		value, ok := "any", true
		if s := q.GetStringMatch(); s != nil {
			value, ok = Text(s)
		}
		if !ok {
			return r, false
		}
		query = append(query, q.GetName()+"="+value)
	}
	if len(query) > 0 {
		r.Path += "?" + strings.Join(query, "&")
	}
	return r, true
}

// Text returns a text that a matcher matches.
func Text(m *matcherv3.StringMatcher) (string, bool) {
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return p.Exact, true
	case *matcherv3.StringMatcher_Prefix:
		return p.Prefix + "any", true
	case *matcherv3.StringMatcher_Suffix:
		return "any" + p.Suffix, true
	case *matcherv3.StringMatcher_Contains:
		return p.Contains, true
	case *matcherv3.StringMatcher_SafeRegex:
		return Regex(p.SafeRegex.GetRegex())
	}
	return "", false
}

// Regex returns a short text that a regular expression matches as a whole.
func Regex(expr string) (string, bool) {
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return "", false
	}
	var b strings.Builder
	if !sample(&b, re.Simplify()) {
		return "", false
	}
	return b.String(), true
}

func sample(b *strings.Builder, re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		if len(re.Rune) == 0 {
			return false
		}
		b.WriteRune(runeOf(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('a')
	case syntax.OpConcat:
		return !slices.ContainsFunc(re.Sub, func(s *syntax.Regexp) bool { return !sample(b, s) })
	case syntax.OpCapture, syntax.OpPlus:
		return sample(b, re.Sub[0])
	case syntax.OpAlternate:
		return sample(b, re.Sub[0])
	case syntax.OpRepeat:
		for range max(re.Min, 0) {
			if !sample(b, re.Sub[0]) {
				return false
			}
		}
	case syntax.OpStar, syntax.OpQuest, syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText:
	default:
		return false
	}
	return true
}

// runeOf returns a letter, or else a digit, or else the first rune of a class, which is a list of ranges.
func runeOf(ranges []rune) rune {
	for _, want := range "a0" {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= want && want <= ranges[i+1] {
				return want
			}
		}
	}
	return ranges[0]
}
