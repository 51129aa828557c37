package convert

import (
	"regexp"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
)

// headerPattern is RFC 9110's token.
var headerPattern = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

// HeaderName checks a name that is matched or written.
func (r *Converter) HeaderName(at problem.Path, name string) {
	switch {
	case name == "":
		r.Errorf(code.MissingField, at, "a header needs a name")
	case !headerPattern.MatchString(name):
		r.Errorf(code.InvalidName, at, "%q is not a header name: use letters, digits and '-'", name)
	}
}

// PlainText checks a text that becomes a header's value, a path or a host, whatever it means to Envoy. It reports false if
// the text has control characters.
func (r *Converter) PlainText(at problem.Path, v string) bool {
	for _, b := range []byte(v) {
		if b < 0x20 && b != '\t' || b == 0x7f {
			r.Errorf(code.InvalidText, at, "the value has a control character (%#02x); remove it", b)
			return false
		}
	}
	if len(v) > maxHeader {
		r.Errorf(code.InvalidText, at, "the value has %d bytes; %d is the limit", len(v), maxHeader)
	}
	return true
}

// maxHeader is how long a value may be for Envoy, in bytes.
const maxHeader = 16384

// RedirectCode checks the HTTP status of a redirect.
func (r *Converter) RedirectCode(at problem.Path, status uint32) {
	switch status {
	case 301, 302, 303, 307, 308:
	default:
		r.Errorf(code.InvalidNumber, at, "%d is not a redirection; use 301, 302, 303, 307 or 308", status)
	}
}

// RedirectScheme checks the scheme of a redirect.
func (r *Converter) RedirectScheme(at problem.Path, scheme string) {
	if scheme != "http" && scheme != "https" {
		r.Errorf(code.UnknownValue, at, "%q is not a scheme; use http or https", scheme)
	}
}

// Weight of a destination; a single one gets everything.
func (r *Converter) Weight(at problem.Path, w int32) uint32 {
	if w < 0 {
		r.Errorf(code.InvalidNumber, at, "%d is negative; use a weight of 0 or more", w)
		return 0
	}
	return uint32(w)
}
