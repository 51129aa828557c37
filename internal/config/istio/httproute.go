package istio

import (
	"regexp"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/config/envoyformat"
	"github.com/moonsail/moonsail/internal/model"
)

// Sizes of direct responses, which every proxy has to hold.
const (
	largeBody   = 100 << 10
	maximumBody = 1 << 20
)

func (c *routeConv) httpRoute(at path, r *networking.HTTPRoute) model.HTTPRoute {
	c.oneAction(at, r)
	out := model.HTTPRoute{
		Name:    r.Name,
		Timeout: c.optionalDuration(at.f("timeout"), r.Timeout),
		Headers: c.headers(at.f("headers"), r.Headers),
		Retry:   c.retry(at.f("retries"), r.Retries),
		Fault:   c.fault(at.f("fault"), r.Fault),
		CORS:    c.cors(at.f("corsPolicy"), r.CorsPolicy),
		Rewrite: c.rewrite(at.f("rewrite"), r.Rewrite),
		Mirrors: c.mirrors(at, r),
	}
	for i, m := range r.Match {
		out.Matches = append(out.Matches, c.httpMatch(at.f("match").i(i), m))
	}
	switch {
	case r.Redirect != nil:
		out.Redirect = c.redirect(at.f("redirect"), r.Redirect, r.Match)
	case r.DirectResponse != nil:
		out.DirectResponse = c.directResponse(at.f("directResponse"), r.DirectResponse)
	case r.Delegate != nil:
		out.Delegate = c.delegateKey(at.f("delegate"), r.Delegate)
	default:
		out.Backends = c.httpBackends(at.f("route"), r.Route)
	}
	c.authorityOnce(at, r)
	return out
}

// oneAction reports routes that do nothing, or several things.
func (c *routeConv) oneAction(at path, r *networking.HTTPRoute) {
	var set []string
	for _, a := range []struct {
		name string
		set  bool
	}{
		{"route", len(r.Route) > 0}, {"redirect", r.Redirect != nil},
		{"directResponse", r.DirectResponse != nil}, {"delegate", r.Delegate != nil},
	} {
		if a.set {
			set = append(set, a.name)
		}
	}
	switch {
	case len(set) == 0:
		c.errorf(at, "does nothing; give one of route, redirect, directResponse and delegate")
	case len(set) > 1:
		c.errorf(at.f(set[1]), "cannot be combined with %s; split the rule in two", set[0])
	case r.Delegate != nil && c.delegate:
		c.errorf(at.f("delegate"), "a delegate cannot delegate again; write its routes here")
	}
	if r.Redirect != nil || r.DirectResponse != nil {
		if r.Fault != nil {
			c.errorf(at.f("fault"), "has no effect on %s; remove it", set[0])
		}
		if r.Rewrite != nil {
			c.errorf(at.f("rewrite"), "has no effect on %s; remove it", set[0])
		}
	}
	if r.Mirror != nil && len(r.Mirrors) > 0 {
		c.errorf(at.f("mirror"), "cannot be combined with mirrors; move it there")
	}
}

func (c *routeConv) delegateKey(at path, d *networking.Delegate) *model.Key {
	key := &model.Key{Kind: model.KindVirtualService, Namespace: cmpOr(d.Namespace, c.meta.Namespace), Name: d.Name}
	if !isName(key.Name) {
		c.errorf(at.f("name"), "%q is not the name of a VirtualService; give one", d.Name)
	}
	if !isLabel(key.Namespace) {
		c.errorf(at.f("namespace"), "%q is not a namespace", d.Namespace)
	}
	return key
}

func (c *routeConv) httpBackends(at path, list []*networking.HTTPRouteDestination) []model.Backend {
	out := make([]model.Backend, 0, len(list))
	var total int64
	for i, d := range list {
		at := at.i(i)
		b := model.Backend{
			Destination: c.destination(at.f("destination"), d.Destination),
			Weight:      c.weight(at.f("weight"), d.Weight),
			Headers:     c.headers(at.f("headers"), d.Headers),
		}
		total += int64(b.Weight)
		out = append(out, b)
	}
	c.totalWeight(at, len(list), total)
	return out
}

func (r *report) redirectCode(at path, code uint32) {
	switch code {
	case 301, 302, 303, 307, 308:
	default:
		r.errorf(at, "%d is not a redirection; use 301, 302, 303, 307 or 308", code)
	}
}

func (r *report) redirectScheme(at path, scheme string) {
	if scheme != "http" && scheme != "https" {
		r.errorf(at, "%q is not a scheme; use http or https", scheme)
	}
}

func (c *routeConv) redirect(at path, r *networking.HTTPRedirect, matches []*networking.HTTPMatchRequest) *model.Redirect {
	out := &model.Redirect{
		URI: r.Uri, PrefixRewrite: r.PrefixRewrite, Authority: r.Authority, Scheme: r.Scheme,
		Port: r.GetPort(), Code: r.RedirectCode,
		PortFromRequest: r.GetDerivePort() == networking.HTTPRedirect_FROM_REQUEST_PORT,
	}
	if out.Code == 0 {
		out.Code = 301
	}
	c.redirectCode(at.f("redirectCode"), out.Code)
	if r.Scheme != "" {
		c.redirectScheme(at.f("scheme"), r.Scheme)
	}
	if out.Port != 0 {
		c.checkPort(at.f("port"), out.Port)
	}
	if r.Uri != "" && r.PrefixRewrite != "" {
		c.errorf(at.f("prefixRewrite"), "cannot be combined with uri; remove one of the two")
	}
	if r.Uri == "" && r.PrefixRewrite == "" && r.Authority == "" && r.RedirectPort == nil && r.Scheme == "" {
		c.errorf(at, "redirects to the same place; give at least one of uri, prefixRewrite, authority, port, derivePort and scheme")
	}
	if r.PrefixRewrite != "" {
		c.prefixMatches(at.f("prefixRewrite"), matches)
	}
	return out
}

// prefixMatches reports that a prefix is replaced which was never matched.
func (c *routeConv) prefixMatches(at path, matches []*networking.HTTPMatchRequest) {
	for i, m := range matches {
		if m.Uri == nil {
			continue
		}
		if _, ok := m.Uri.MatchType.(*networking.StringMatch_Prefix); !ok {
			c.errorf(at, "replaces the prefix that was matched, but match[%d].uri is not a prefix match; match a prefix, or use uri", i)
		}
	}
}

func (c *routeConv) directResponse(at path, r *networking.HTTPDirectResponse) *model.DirectResponse {
	out := &model.DirectResponse{Status: r.Status}
	c.httpStatus(at.f("status"), r.Status)
	switch b := r.GetBody().GetSpecifier().(type) {
	case *networking.HTTPBody_String_:
		out.Body = []byte(b.String_)
	case *networking.HTTPBody_Bytes:
		out.Body = b.Bytes
	}
	switch size := len(out.Body); {
	case size > maximumBody:
		c.errorf(at.f("body"), "has %d bytes; %d is the limit: serve it from a service", size, maximumBody)
	case size > largeBody:
		c.warnf(at.f("body"), "has %d bytes, which every proxy has to hold; serve it from a service", size)
	}
	return out
}

func (c *routeConv) httpStatus(at path, status uint32) {
	if status < 200 || status > 599 {
		c.errorf(at, "%d is not an HTTP status; use 200 to 599", status)
	}
}

func (c *routeConv) rewrite(at path, r *networking.HTTPRewrite) *model.Rewrite {
	if r == nil {
		return nil
	}
	out := &model.Rewrite{URI: r.Uri, Authority: r.Authority}
	if re := r.UriRegexRewrite; re != nil {
		out.Regex, out.RegexTo = re.Match, re.Rewrite
		at := at.f("uriRegexRewrite")
		c.regex(at.f("match"), re.Match)
		if re.Rewrite == "" {
			c.errorf(at.f("rewrite"), "is missing; give what replaces the match")
		}
		c.groups(at.f("rewrite"), re.Match, re.Rewrite)
		if r.Uri != "" {
			c.errorf(at, "cannot be combined with uri; remove one of the two")
		}
	} else if r.Uri == "" && r.Authority == "" {
		c.errorf(at, "changes nothing; give uri, uriRegexRewrite or authority")
	}
	return out
}

// groups checks that what replaces a match names groups that there are.
func (c *routeConv) groups(at path, match, to string) {
	re, err := regexp.Compile(match)
	if err != nil {
		return // that is told
	}
	if err := envoyformat.CheckGroups(to, re.NumSubexp()); err != nil {
		c.errorf(at, "%v", err)
	}
}

// authorityOnce reports rules that set the authority in two places.
func (c *routeConv) authorityOnce(at path, r *networking.HTTPRoute) {
	have := r.GetRewrite().GetAuthority()
	ops := r.GetHeaders().GetRequest()
	for _, set := range []struct {
		name   string
		values map[string]string
	}{{"set", ops.GetSet()}, {"add", ops.GetAdd()}} {
		for k, v := range set.values {
			if !isAuthority(k) {
				continue
			}
			if have != "" {
				c.errorf(at.f("headers").f("request").f(set.name).k(k), "sets the authority to %q, which is already set to %q; keep one", v, have)
			}
			have = v
		}
	}
}

func isAuthority(header string) bool {
	return strings.EqualFold(header, ":authority") || strings.EqualFold(header, "host")
}
