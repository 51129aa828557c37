package gatewayapi

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/envoyformat"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// routeFilter takes a filter of a rule, but for new paths, which depend on the match. It is false for one that is not
// known: it may be what decides who may call, so that no request gets past it.
func (c *conv) routeFilter(at problem.Path, f *gatewayv1.HTTPRouteFilter, out *model.HTTPRoute) bool {
	switch {
	case f.CORS != nil:
		out.CORS = c.corsFilter(at.Field("cors"), f.CORS)
	case f.RequestRedirect != nil:
		out.Redirect = c.redirect(at.Field("requestRedirect"), f.RequestRedirect)
	case f.URLRewrite != nil:
		if h := f.URLRewrite.Hostname; h != nil {
			c.CheckHost(at.Field("urlRewrite").Field("hostname"), string(*h), false)
		}
		c.newPath(at.Field("urlRewrite").Field("path"), f.URLRewrite.Path)
	case f.RequestMirror != nil:
		m := model.Mirror{Percent: 100}
		var grant *model.Key
		if m.Destination, grant = c.backend(at.Field("requestMirror").Field("backendRef"), &f.RequestMirror.BackendRef); grant != nil {
			c.Warnf(code.NotSupported, at.Field("requestMirror"), "mirroring to another namespace has no effect in Moonsail yet")
			return true
		}
		m.Percent = c.mirrorShare(at.Field("requestMirror"), f.RequestMirror)
		if out.Mirrors == nil {
			out.Mirrors = &model.Mirrors{}
		}
		out.Mirrors.List = append(out.Mirrors.List, m)
	default:
		return c.headerFilter(at, f, &out.Headers)
	}
	return true
}

// mirrorShare is in percent.
func (c *conv) mirrorShare(at problem.Path, f *gatewayv1.HTTPRequestMirrorFilter) float64 {
	switch {
	case f.Fraction != nil:
		of := int32(100)
		if f.Fraction.Denominator != nil {
			of = *f.Fraction.Denominator
		}
		if of < 1 || f.Fraction.Numerator < 0 || f.Fraction.Numerator > of {
			c.Errorf(code.InvalidNumber, at.Field("fraction"), "%d of %d is not a fraction; use 0 of 100 to 100 of 100", f.Fraction.Numerator, of)
			return 0
		}
		return 100 * float64(f.Fraction.Numerator) / float64(of)
	case f.Percent != nil:
		return c.Percent(at.Field("percent"), float64(*f.Percent))
	}
	return 100
}

// headerFilter takes filters that change headers; it is false for others.
func (c *conv) headerFilter(at problem.Path, f *gatewayv1.HTTPRouteFilter, out *model.Headers) bool {
	switch {
	case f.RequestHeaderModifier != nil:
		out.Request = c.headerChanges(at.Field("requestHeaderModifier"), f.RequestHeaderModifier)
	case f.ResponseHeaderModifier != nil:
		out.Response = c.headerChanges(at.Field("responseHeaderModifier"), f.ResponseHeaderModifier)
	default:
		c.Warnf(code.NotSupported, at.Field("type"), "Moonsail has no %s here yet, so its requests get an error, as the Gateway API requires; remove it to let them pass", f.Type)
		return false
	}
	return true
}

func (c *conv) headerChanges(at problem.Path, f *gatewayv1.HTTPHeaderFilter) model.HeaderOps {
	values := func(at problem.Path, list []gatewayv1.HTTPHeader) []model.HeaderValue {
		var out []model.HeaderValue
		seen := map[string]bool{}
		for i, h := range list {
			if c.repeated(at.Index(i).Field("name"), seen, strings.ToLower(string(h.Name))) {
				continue
			}
			c.plainHeader(at.Index(i).Field("name"), string(h.Name))
			c.PlainText(at.Index(i).Field("value"), h.Value)
			out = append(out, model.HeaderValue{Name: strings.ToLower(string(h.Name)), Value: plainValue(h.Value)})
		}
		slices.SortStableFunc(out, func(a, b model.HeaderValue) int { return strings.Compare(a.Name, b.Name) })
		return out
	}
	out := model.HeaderOps{Set: values(at.Field("set"), f.Set), Add: values(at.Field("add"), f.Add)}
	for i, name := range f.Remove {
		c.plainHeader(at.Field("remove").Index(i), name)
		out.Remove = append(out.Remove, strings.ToLower(name))
	}
	slices.Sort(out.Remove)
	return out
}

// plainHeader checks a header's name. Envoy changes none of those that are no real headers: these are left out.
func (c *conv) plainHeader(at problem.Path, name string) {
	if !strings.HasPrefix(name, ":") {
		c.HeaderName(at, name)
	}
}

// plainValue is a value that Envoy takes: one that is none of its formats is text, percent signs and all.
func plainValue(v string) string {
	if envoyformat.CheckHeader(v) == nil {
		return v
	}
	return strings.ReplaceAll(v, "%", "%%")
}

func (c *conv) redirect(at problem.Path, f *gatewayv1.HTTPRequestRedirectFilter) *model.Redirect {
	out := &model.Redirect{Code: http.StatusFound}
	if f.StatusCode != nil {
		out.Code = uint32(*f.StatusCode)
		c.RedirectCode(at.Field("statusCode"), out.Code)
	}
	if f.Scheme != nil {
		out.Scheme = *f.Scheme
		c.RedirectScheme(at.Field("scheme"), out.Scheme)
	}
	if f.Hostname != nil {
		out.Authority = string(*f.Hostname)
		c.CheckHost(at.Field("hostname"), out.Authority, false)
	}
	switch {
	case f.Port != nil && c.CheckPort(at.Field("port"), uint32(*f.Port)):
		out.Port = uint32(*f.Port)
	case f.Port == nil && out.Scheme == "":
		out.PortFromRequest = true
	}
	c.newPath(at.Field("path"), f.Path)
	return out
}

// redirectOf is the redirect of a rule under a match with a prefix, with its path; nil: there is none.
func redirectOf(r *model.Redirect, list []gatewayv1.HTTPRouteFilter, prefix string) *model.Redirect {
	i := slices.IndexFunc(list, func(f gatewayv1.HTTPRouteFilter) bool {
		return f.RequestRedirect != nil && f.RequestRedirect.Path != nil
	})
	if r == nil || i < 0 {
		return r
	}
	out := *r
	if p := list[i].RequestRedirect.Path; p.ReplaceFullPath != nil {
		out.URI = cmp.Or(*p.ReplaceFullPath, "/")
	} else if p.ReplacePrefixMatch != nil {
		rewrite := replacePrefix(prefix, *p.ReplacePrefixMatch)
		out.PrefixRewrite, out.Regex, out.RegexTo = rewrite.URI, rewrite.Regex, rewrite.RegexTo
	}
	return &out
}

// newPath checks what replaces a path.
func (c *conv) newPath(at problem.Path, p *gatewayv1.HTTPPathModifier) {
	if p == nil {
		return
	}
	if p.ReplaceFullPath != nil {
		c.PlainText(at.Field("replaceFullPath"), *p.ReplaceFullPath)
	}
	if p.ReplacePrefixMatch != nil {
		c.PlainText(at.Field("replacePrefixMatch"), *p.ReplacePrefixMatch)
	}
}

// rewriteOf is the rewrite of a rule under a match with a prefix; nil: there is none.
func rewriteOf(list []gatewayv1.HTTPRouteFilter, prefix string) *model.Rewrite {
	for i := range list {
		if f := list[i].URLRewrite; f != nil {
			return urlRewrite(f, prefix)
		}
	}
	return nil
}

func urlRewrite(f *gatewayv1.HTTPURLRewriteFilter, prefix string) *model.Rewrite {
	out := &model.Rewrite{}
	if p := f.Path; p != nil && p.ReplaceFullPath != nil {
		out.Regex, out.RegexTo = "^.*$", plainSubstitution(cmp.Or(*p.ReplaceFullPath, "/"))
	} else if p != nil && p.ReplacePrefixMatch != nil {
		out = replacePrefix(prefix, *p.ReplacePrefixMatch)
	}
	if f.Hostname != nil {
		out.Authority = string(*f.Hostname)
	}
	return out
}
