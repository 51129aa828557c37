package istio

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/config/envoyformat"
	"github.com/moonsail/moonsail/internal/model"
)

// headerPattern is RFC 9110's token.
var headerPattern = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

// headerName checks a name that is matched or written.
func (r *report) headerName(at path, name string) {
	switch {
	case name == "":
		r.errorf(at, "a header needs a name")
	case !headerPattern.MatchString(name):
		r.errorf(at, "%q is not a header name: use letters, digits and '-'", name)
	}
}

func (c *routeConv) headers(at path, h *networking.Headers) model.Headers {
	return model.Headers{
		Request:  c.headerOps(at.f("request"), h.GetRequest(), true),
		Response: c.headerOps(at.f("response"), h.GetResponse(), false),
	}
}

// headerOps converts the changes of one direction. Only requests have an authority.
func (c *routeConv) headerOps(at path, ops *networking.Headers_HeaderOperations, request bool) model.HeaderOps {
	for i, name := range ops.GetRemove() {
		c.changedHeader(at.f("remove").i(i), name, false)
	}
	return model.HeaderOps{
		Set:    c.headerValues(at.f("set"), ops.GetSet(), request),
		Add:    c.headerValues(at.f("add"), ops.GetAdd(), request),
		Remove: slices.Sorted(slices.Values(ops.GetRemove())),
	}
}

func (c *routeConv) headerValues(at path, values map[string]string, request bool) []model.HeaderValue {
	var out []model.HeaderValue
	for _, name := range slices.Sorted(maps.Keys(values)) {
		c.changedHeader(at.k(name), name, request)
		c.headerValue(at.k(name), values[name])
		out = append(out, model.HeaderValue{Name: name, Value: values[name]})
	}
	return out
}

// changedHeader reports headers that Envoy does not let be changed.
func (c *routeConv) changedHeader(at path, name string, authority bool) {
	switch {
	case authority && isAuthority(name):
	case strings.EqualFold(name, "host"):
		c.errorf(at, "the Host header cannot be changed here; use rewrite.authority, or headers.request.set")
	case strings.HasPrefix(name, ":"):
		c.errorf(at, "%q cannot be changed: headers that start with ':' are not real headers", name)
	default:
		c.headerName(at, name)
	}
}

// plainText checks a header's value, whatever it means to Envoy; false: it has control characters.
func (r *report) plainText(at path, v string) bool {
	for _, b := range []byte(v) {
		if b < 0x20 && b != '\t' || b == 0x7f {
			r.errorf(at, "the value has a control character (%#02x); remove it", b)
			return false
		}
	}
	if len(v) > maxHeader {
		r.errorf(at, "the value has %d bytes; %d is the limit", len(v), maxHeader)
	}
	return true
}

func (c *routeConv) headerValue(at path, v string) {
	if !c.plainText(at, v) {
		return
	}
	if msg := formatError(v); msg != "" {
		c.errorf(at, "%s", msg)
	} else if err := envoyformat.Check(v); err != nil {
		c.errorf(at, "%v", err)
	}
}

// maxHeader is how long a value may be for Envoy, in bytes.
const maxHeader = 16384

// formatError checks Envoy's substitution format: "%NAME%", "%NAME(argument)%" with an
// optional ":length", and "%%" for a percent sign.
func formatError(v string) string {
	for {
		i := strings.IndexByte(v, '%')
		if i < 0 {
			return ""
		}
		rest := v[i+1:]
		if strings.HasPrefix(rest, "%") {
			v = rest[1:]
			continue
		}
		n := command.FindString(rest)
		if n == "" {
			return "the value has a single %; write %% for a percent sign, or a command such as %DOWNSTREAM_REMOTE_ADDRESS%"
		}
		v = rest[len(n):]
	}
}

var command = regexp.MustCompile(`^[A-Z][A-Z0-9_]*(\(.*?\))?(:[0-9]+)?%`)
