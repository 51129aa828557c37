package istioapi

import (
	"net/http"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moonsail/moonsail/internal/model"
)

// routeFilter takes a filter of a rule, but for rewrites, which depend on the match.
func (c *conv) routeFilter(at path, f *gatewayv1.HTTPRouteFilter, out *model.HTTPRoute) {
	switch {
	case f.RequestRedirect != nil:
		out.Redirect = c.kubernetesRedirect(at.f("requestRedirect"), f.RequestRedirect)
	case f.URLRewrite != nil:
	case f.RequestMirror != nil:
		m := model.Mirror{Percent: 100}
		var grant *model.Key
		if m.Destination, grant = c.backend(at.f("requestMirror").f("backendRef"), &f.RequestMirror.BackendRef); grant != nil {
			c.warnf(at.f("requestMirror"), "mirroring to another namespace has no effect in Moonsail yet")
			return
		}
		if p := f.RequestMirror.Percent; p != nil {
			m.Percent = float64(*p)
		}
		out.Mirrors = append(out.Mirrors, m)
	default:
		c.headerFilter(at, f, &out.Headers)
	}
}

// headerFilter takes filters that change headers; others have no effect.
func (c *conv) headerFilter(at path, f *gatewayv1.HTTPRouteFilter, out *model.Headers) {
	switch {
	case f.RequestHeaderModifier != nil:
		out.Request = headerOps(f.RequestHeaderModifier)
	case f.ResponseHeaderModifier != nil:
		out.Response = headerOps(f.ResponseHeaderModifier)
	default:
		c.warnf(at.f("type"), "%s has no effect in Moonsail yet", f.Type)
	}
}

func headerOps(f *gatewayv1.HTTPHeaderFilter) model.HeaderOps {
	values := func(list []gatewayv1.HTTPHeader) []model.HeaderValue {
		var out []model.HeaderValue
		for _, h := range list {
			out = append(out, model.HeaderValue{Name: strings.ToLower(string(h.Name)), Value: h.Value})
		}
		slices.SortStableFunc(out, func(a, b model.HeaderValue) int { return strings.Compare(a.Name, b.Name) })
		return out
	}
	out := model.HeaderOps{Set: values(f.Set), Add: values(f.Add)}
	for _, name := range f.Remove {
		out.Remove = append(out.Remove, strings.ToLower(name))
	}
	slices.Sort(out.Remove)
	return out
}

func (c *conv) kubernetesRedirect(at path, f *gatewayv1.HTTPRequestRedirectFilter) *model.Redirect {
	out := &model.Redirect{Code: http.StatusFound}
	if f.StatusCode != nil {
		out.Code = uint32(*f.StatusCode)
	}
	if f.Scheme != nil {
		out.Scheme = *f.Scheme
	}
	if f.Hostname != nil {
		out.Authority = string(*f.Hostname)
	}
	switch {
	case f.Port != nil && c.checkPort(at.f("port"), uint32(*f.Port)):
		out.Port = uint32(*f.Port)
	case f.Port == nil && out.Scheme == "":
		out.PortFromRequest = true
	}
	if p := f.Path; p != nil && p.ReplaceFullPath != nil {
		out.URI = *p.ReplaceFullPath
	} else if p != nil && p.ReplacePrefixMatch != nil {
		out.PrefixRewrite = *p.ReplacePrefixMatch
	}
	return out
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
		out.Regex, out.RegexTo = "^.*$", strings.ReplaceAll(*p.ReplaceFullPath, `\`, `\\`)
	} else if p != nil && p.ReplacePrefixMatch != nil {
		out = replacePrefix(prefix, *p.ReplacePrefixMatch)
	}
	if f.Hostname != nil {
		out.Authority = string(*f.Hostname)
	}
	return out
}
