package istio

import (
	"fmt"
	"regexp"
	"strings"
)

// Operators of path templates: one segment, and any number of them.
const (
	templateOne = "{*}"
	templateAny = "{**}"
)

// maxTemplate is how long a template may be for Envoy, in bytes, where {*} is "*" and {**} is "**". Envoy refuses
// the whole listener for a longer one, with all policies that are in it.
const maxTemplate = 256

// literalSegment is RFC 3986's pchar, as far as Envoy takes it in templates.
var literalSegment = regexp.MustCompile(`^[a-zA-Z0-9-._~%!$&'()+,;:@=]+$`)

// IsPathTemplate tells whether a path is compared as a template.
func IsPathTemplate(p string) bool {
	return strings.Contains(p, templateOne) || strings.Contains(p, templateAny)
}

// pathTemplate checks a template: each segment is an operator or literal, and nothing follows
// {**} but literals.
func (r *report) pathTemplate(at path, p string) {
	if msg := templateError(p); msg != "" {
		r.errorf(at, "%q is not a path template: %s", p, msg)
	}
}

func templateError(p string) string {
	if !IsPathTemplate(p) {
		return "braces are only for {*} and {**}"
	}
	if !strings.HasPrefix(p, "/") {
		return "it must begin with \"/\""
	}
	if n := len(p) - strings.Count(p, "{") - strings.Count(p, "}"); n > maxTemplate {
		return fmt.Sprintf("it is longer than %d characters", maxTemplate)
	}
	rest := false
	for s := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(p, "/"), "/"), "/") {
		switch {
		case (s == templateOne || s == templateAny) && rest:
			return "{**} must be the last operator"
		case s == templateAny:
			rest = true
		case s == templateOne:
		case strings.ContainsAny(s, "{}"):
			return "{*} and {**} stand for whole segments, between two \"/\""
		case s == "":
			return "it has an empty segment"
		case !literalSegment.MatchString(s):
			return "segment \"" + s + "\" has characters that templates cannot have"
		}
	}
	return ""
}
