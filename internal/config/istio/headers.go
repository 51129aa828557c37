package istio

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/envoyformat"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

func (c *routeConv) headers(at problem.Path, h *networking.Headers) model.Headers {
	return model.Headers{
		Request:  c.headerOps(at.Field("request"), h.GetRequest(), true),
		Response: c.headerOps(at.Field("response"), h.GetResponse(), false),
	}
}

// headerOps converts the changes of one direction. Only requests have an authority.
func (c *routeConv) headerOps(at problem.Path, ops *networking.Headers_HeaderOperations, request bool) model.HeaderOps {
	for i, name := range ops.GetRemove() {
		c.changedHeader(at.Field("remove").Index(i), name, false)
	}
	return model.HeaderOps{
		Set:    c.headerValues(at.Field("set"), ops.GetSet(), request),
		Add:    c.headerValues(at.Field("add"), ops.GetAdd(), request),
		Remove: slices.Sorted(slices.Values(ops.GetRemove())),
	}
}

func (c *routeConv) headerValues(at problem.Path, values map[string]string, request bool) []model.HeaderValue {
	var out []model.HeaderValue
	for _, name := range slices.Sorted(maps.Keys(values)) {
		c.changedHeader(at.Key(name), name, request)
		c.headerValue(at.Key(name), values[name])
		out = append(out, model.HeaderValue{Name: name, Value: values[name]})
	}
	return out
}

// changedHeader reports headers that Envoy does not let be changed.
func (c *routeConv) changedHeader(at problem.Path, name string, authority bool) {
	switch {
	case authority && isAuthority(name):
	case strings.EqualFold(name, "host"):
		c.Errorf(code.NotAllowedHere, at, "the Host header cannot be changed here; use rewrite.authority, or headers.request.set")
	case strings.HasPrefix(name, ":"):
		c.Errorf(code.NotAllowedHere, at, "%q cannot be changed: headers that start with ':' are not real headers", name)
	default:
		c.HeaderName(at, name)
	}
}

func (c *routeConv) headerValue(at problem.Path, v string) {
	if !c.PlainText(at, v) {
		return
	}
	if msg := formatError(v); msg != "" {
		c.Errorf(code.InvalidName, at, "%s", msg)
	} else if err := envoyformat.CheckHeader(v); err != nil {
		c.Errorf(code.InvalidExpression, at, "%v", err)
	}
}

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
