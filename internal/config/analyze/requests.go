package analyze

import (
	"fmt"
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

// paths reports paths of rewrites and redirects that are no paths, and redirects that lead to themselves.
func (c silentChecks) paths(v *model.VirtualService, field string, r *model.HTTPRoute) {
	if r.Rewrite != nil && noPath(r.Rewrite.URI) {
		c.warnf(code.PathWithoutSlash, v, field+".rewrite.uri", "%q does not begin with a slash, so the path of requests does not either, and servers refuse them; write %q", r.Rewrite.URI, "/"+r.Rewrite.URI).Set("/" + r.Rewrite.URI)
	}
	d := r.Redirect
	if d == nil {
		return
	}
	if noPath(d.URI) {
		c.warnf(code.PathWithoutSlash, v, field+".redirect.uri", "%q does not begin with a slash, so clients do not find the place; write %q", d.URI, "/"+d.URI).Set("/" + d.URI)
	}
	if d.Authority != "" || d.Scheme != "" || d.Port != 0 || d.PrefixRewrite != "" || d.URI == "" {
		return
	}
	for i := range r.Matches {
		u := r.Matches[i].URI
		if u != nil && (u.Kind == model.MatchPrefix && strings.HasPrefix(d.URI, u.Value) || u.Kind == model.MatchExact && d.URI == u.Value) {
			c.warnf(code.RedirectLoop, v, fmt.Sprintf("%s.match[%d].uri", field, i), "matches %s, to which the rule redirects, so clients are redirected again and again; match the old paths only", d.URI)
		}
	}
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
