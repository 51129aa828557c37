package analyze

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/model"
)

// literals reports texts of a match that no request has, because they are compared literally.
func (c silentChecks) literals(v *model.VirtualService, field string, m *model.HTTPMatch) {
	if u := m.URI; u != nil && (u.Kind == model.MatchPrefix || u.Kind == model.MatchExact) {
		switch {
		case looksLikeRegex(u.Value):
			c.warnf(code.NeverMatches, v, field+".uri", "%q is compared literally, also its %s; use regex, or leave that out", u.Value, regexPart(u.Value))
		case strings.ContainsAny(u.Value, "?#"):
			c.warnf(code.NeverMatches, v, field+".uri", "%q never matches: what follows a \"?\" or \"#\" is not part of the path; use queryParams", u.Value)
		}
	}
	if s := m.Method; s != nil && s.Kind == model.MatchExact && s.Value != strings.ToUpper(s.Value) {
		c.warnf(code.NeverMatches, v, field+".method.exact", "%q never matches: methods are in upper case; write %q", s.Value, strings.ToUpper(s.Value)).Set(strings.ToUpper(s.Value))
	}
}

// regexParts are what regular expressions have and paths do not.
var regexParts = []string{".*", ".+", "[^", "(?", "\\d", "\\w"}

func looksLikeRegex(text string) bool { return regexPart(text) != "" }

func regexPart(text string) string {
	for _, part := range regexParts {
		if strings.Contains(text, part) {
			return part
		}
	}
	return ""
}

// paths reports paths of rewrites and redirects that are no paths.
func (c silentChecks) paths(v *model.VirtualService, field string, r *model.HTTPRoute) {
	if r.Rewrite != nil && noPath(r.Rewrite.URI) {
		c.warnf(code.PathWithoutSlash, v, field+".rewrite.uri", "%q does not begin with a slash, so the path of requests does not either, and servers refuse them; write %q", r.Rewrite.URI, "/"+r.Rewrite.URI).Set("/" + r.Rewrite.URI)
	}
	if d := r.Redirect; d != nil && noPath(d.URI) {
		c.warnf(code.PathWithoutSlash, v, field+".redirect.uri", "%q does not begin with a slash, so clients do not find the place; write %q", d.URI, "/"+d.URI).Set("/" + d.URI)
	}
}

// redirectLoop reports matches of rule i that its redirect leads to, unless an earlier rule takes the request.
func (c silentChecks) redirectLoop(v *model.VirtualService, i int) {
	r, d := &v.HTTP[i], v.HTTP[i].Redirect
	if d == nil || d.Authority != "" || d.Scheme != "" || d.Port != 0 || d.PrefixRewrite != "" || d.URI == "" {
		return
	}
	path, _, _ := strings.Cut(d.URI, "?")
	for k := range v.HTTP[:i] {
		if slices.ContainsFunc(v.HTTP[k].Matches, func(m model.HTTPMatch) bool { return onlyPath(&m) && takesPath(&m, path) }) {
			return
		}
	}
	for j := range r.Matches {
		if m := &r.Matches[j]; onlyLiteral(m) && takesPath(m, path) && !becomesGET(m, d.Code) {
			c.warnf(code.RedirectLoop, v, fmt.Sprintf("spec.http[%d].match[%d].uri", i, j), "matches %s, to which the rule redirects, so clients are redirected again and again; match the old paths only", d.URI)
		}
	}
}

// onlyLiteral reports whether a match compares the path, and not by an expression.
func onlyLiteral(m *model.HTTPMatch) bool {
	return m.URI != nil && (m.URI.Kind == model.MatchPrefix || m.URI.Kind == model.MatchExact)
}

// takesPath reports whether the condition of a match for the path holds.
func takesPath(m *model.HTTPMatch, path string) bool {
	value := m.URI.Value
	if m.IgnoreURICase {
		value, path = strings.ToLower(value), strings.ToLower(path)
	}
	switch m.URI.Kind {
	case model.MatchExact:
		return path == value
	case model.MatchPrefix:
		return strings.HasPrefix(path, value)
	case model.MatchRegex:
		re, err := regexp.Compile("^(?:" + m.URI.Value + ")$")
		return err == nil && re.MatchString(path)
	}
	return false
}

// becomesGET reports whether clients answer a redirect of the matching requests with another method, GET.
func becomesGET(m *model.HTTPMatch, status uint32) bool {
	other := m.Method != nil && m.Method.Kind == model.MatchExact && m.Method.Value != http.MethodGet && m.Method.Value != http.MethodHead
	return other && status != http.StatusTemporaryRedirect && status != http.StatusPermanentRedirect
}

func noPath(uri string) bool { return uri != "" && !strings.HasPrefix(uri, "/") }

// origins reports origins of CORS that no browser sends.
func (c silentChecks) origins(v *model.VirtualService, field string, r *model.HTTPRoute) {
	if r.CORS == nil {
		return
	}
	for i, o := range r.CORS.AllowOrigins {
		if o.Kind == model.MatchExact && o.Value != "*" && o.Value != "null" && !strings.Contains(o.Value, "://") {
			c.warnf(code.NeverMatches, v, fmt.Sprintf("%s.corsPolicy.allowOrigins[%d]", field, i), "%q never matches: origins have a scheme; write %q", o.Value, "https://"+o.Value)
		}
	}
}
