package istio

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/envoyformat"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Sizes of direct responses, which every proxy has to hold.
const (
	largeBody   = 100 << 10
	maximumBody = 1 << 20
)

func (c *routeConv) httpRoute(at problem.Path, r *networking.HTTPRoute) model.HTTPRoute {
	c.oneAction(at, r)
	out := model.HTTPRoute{
		Name:    r.Name,
		Timeout: c.OptionalDuration(at.Field("timeout"), r.Timeout),
		Headers: c.headers(at.Field("headers"), r.Headers),
		Retry:   c.retry(at.Field("retries"), r.Retries),
		Fault:   c.fault(at.Field("fault"), r.Fault),
		CORS:    c.cors(at.Field("corsPolicy"), r.CorsPolicy),
		Rewrite: c.rewrite(at.Field("rewrite"), r.Rewrite),
		Mirrors: c.mirrors(at, r),
	}
	for i, m := range r.Match {
		out.Matches = append(out.Matches, c.httpMatch(at.Field("match").Index(i), m))
	}
	switch {
	case r.Redirect != nil:
		out.Redirect = c.redirect(at.Field("redirect"), r.Redirect, r.Match)
	case r.DirectResponse != nil:
		out.DirectResponse = c.directResponse(at.Field("directResponse"), r.DirectResponse)
	case r.Delegate != nil: // below
	default:
		out.Backends = c.httpBackends(at.Field("route"), r.Route)
	}
	if r.Delegate != nil {
		out.Delegate = c.delegateKey(at.Field("delegate"), r.Delegate)
	}
	c.authorityOnce(at, r)
	return out
}

// oneAction reports routes that do nothing, or several things.
func (c *routeConv) oneAction(at problem.Path, r *networking.HTTPRoute) {
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
		c.Errorf(code.EmptyValue, at, "does nothing; set one of route, redirect, directResponse and delegate")
	case slices.Equal(set, []string{"directResponse", "delegate"}) && !c.delegate: // of the delegate's rules without one
	case len(set) > 1:
		c.Errorf(code.ExclusiveFields, at.Field(set[1]), "cannot be combined with %s; split the rule in two", set[0])
	case r.Delegate != nil && c.delegate:
		c.Errorf(code.NotAllowedHere, at.Field("delegate"), "a delegate cannot delegate again; write its routes here")
	}
	if r.Redirect != nil || r.DirectResponse != nil && r.Delegate == nil {
		if r.Fault != nil {
			c.Errorf(code.NoEffect, at.Field("fault"), "has no effect on %s; remove it", set[0])
		}
		if r.Rewrite != nil {
			c.Errorf(code.NoEffect, at.Field("rewrite"), "has no effect on %s; remove it", set[0])
		}
	}
	if r.Mirror != nil && len(r.Mirrors) > 0 {
		c.Errorf(code.ExclusiveFields, at.Field("mirror"), "cannot be combined with mirrors; move it there")
	}
}

func (c *routeConv) delegateKey(at problem.Path, d *networking.Delegate) *model.Key {
	key := &model.Key{Kind: model.KindVirtualService, Namespace: cmp.Or(d.Namespace, c.Meta.Namespace), Name: d.Name}
	if !convert.IsName(key.Name) {
		c.Errorf(code.InvalidName, at.Field("name"), "%q is not the name of a VirtualService; correct it", d.Name)
	}
	if !convert.IsLabel(key.Namespace) {
		c.Errorf(code.InvalidName, at.Field("namespace"), "%q is not a namespace", d.Namespace)
	}
	return key
}

func (c *routeConv) httpBackends(at problem.Path, list []*networking.HTTPRouteDestination) []model.Backend {
	out := make([]model.Backend, 0, len(list))
	var total int64
	for i, d := range list {
		at := at.Index(i)
		b := model.Backend{
			Destination: virtualServiceConv{c.Converter}.destination(at.Field("destination"), d.Destination),
			Weight:      c.Weight(at.Field("weight"), d.Weight),
			Headers:     c.headers(at.Field("headers"), d.Headers),
		}
		total += int64(b.Weight)
		out = append(out, b)
	}
	virtualServiceConv{c.Converter}.totalWeight(at, len(list), total)
	return out
}

func (c *routeConv) redirect(at problem.Path, r *networking.HTTPRedirect, matches []*networking.HTTPMatchRequest) *model.Redirect {
	out := &model.Redirect{
		URI: r.Uri, PrefixRewrite: r.PrefixRewrite, Authority: r.Authority, Scheme: r.Scheme,
		Port: r.GetPort(), Code: r.RedirectCode,
		PortFromRequest: r.GetDerivePort() == networking.HTTPRedirect_FROM_REQUEST_PORT,
	}
	if out.Code == 0 {
		out.Code = 301
	}
	c.RedirectCode(at.Field("redirectCode"), out.Code)
	c.PlainText(at.Field("uri"), r.Uri)
	c.PlainText(at.Field("prefixRewrite"), r.PrefixRewrite)
	c.PlainText(at.Field("authority"), r.Authority)
	if r.Scheme != "" {
		c.RedirectScheme(at.Field("scheme"), r.Scheme)
	}
	if out.Port != 0 {
		c.CheckPort(at.Field("port"), out.Port)
	}
	if r.Uri != "" && r.PrefixRewrite != "" {
		c.Errorf(code.ExclusiveFields, at.Field("prefixRewrite"), "cannot be combined with uri; remove one of the two")
	}
	if r.Uri == "" && r.PrefixRewrite == "" && r.Authority == "" && r.RedirectPort == nil && r.Scheme == "" {
		c.Errorf(code.EmptyValue, at, "redirects to the same place; set at least one of uri, prefixRewrite, authority, port, derivePort and scheme")
	}
	if r.PrefixRewrite != "" {
		c.prefixMatches(at.Field("prefixRewrite"), matches)
	}
	return out
}

// prefixMatches reports that a prefix is replaced which was never matched.
func (c *routeConv) prefixMatches(at problem.Path, matches []*networking.HTTPMatchRequest) {
	for i, m := range matches {
		if m.Uri == nil {
			continue
		}
		if _, ok := m.Uri.MatchType.(*networking.StringMatch_Prefix); !ok {
			c.Errorf(code.NotAllowedHere, at, "replaces the prefix that was matched, but match[%d].uri is not a prefix match; match a prefix, or use uri", i)
		}
	}
}

func (c *routeConv) directResponse(at problem.Path, r *networking.HTTPDirectResponse) *model.DirectResponse {
	out := &model.DirectResponse{Status: r.Status}
	c.httpStatus(at.Field("status"), r.Status)
	switch b := r.GetBody().GetSpecifier().(type) {
	case *networking.HTTPBody_String_:
		out.Body = []byte(b.String_)
	case *networking.HTTPBody_Bytes:
		out.Body = b.Bytes
	}
	switch size := len(out.Body); {
	case size > maximumBody:
		c.Errorf(code.InvalidText, at.Field("body"), "has %d bytes; %d is the limit: serve it from a service", size, maximumBody)
	case size > largeBody:
		c.Warnf(code.NoEffect, at.Field("body"), "has %d bytes, which every proxy has to hold; serve it from a service", size)
	}
	return out
}

func (c *routeConv) httpStatus(at problem.Path, status uint32) {
	if status < 200 || status > 599 {
		c.Errorf(code.InvalidNumber, at, "%d is not an HTTP status; use 200 to 599", status)
	}
}

func (c *routeConv) rewrite(at problem.Path, r *networking.HTTPRewrite) *model.Rewrite {
	if r == nil {
		return nil
	}
	out := &model.Rewrite{URI: r.Uri, Authority: r.Authority}
	c.PlainText(at.Field("uri"), r.Uri)
	c.PlainText(at.Field("authority"), r.Authority)
	if re := r.UriRegexRewrite; re != nil {
		out.Regex, out.RegexTo = re.Match, re.Rewrite
		at := at.Field("uriRegexRewrite")
		c.Regex(at.Field("match"), re.Match)
		if re.Rewrite == "" {
			c.Errorf(code.MissingField, at.Field("rewrite"), "is missing; set the replacement of the match")
		}
		c.PlainText(at.Field("rewrite"), re.Rewrite)
		c.groups(at.Field("rewrite"), re.Match, re.Rewrite)
		if r.Uri != "" {
			c.Errorf(code.ExclusiveFields, at, "cannot be combined with uri; remove one of the two")
		}
	} else if r.Uri == "" && r.Authority == "" {
		c.Errorf(code.EmptyValue, at, "changes nothing; set uri, uriRegexRewrite or authority")
	}
	return out
}

// groups checks that what replaces a match names groups that there are.
func (c *routeConv) groups(at problem.Path, match, to string) {
	re, err := regexp.Compile(match)
	if err != nil {
		return // reported by the caller
	}
	if err := envoyformat.CheckGroups(to, re.NumSubexp()); err != nil {
		c.Errorf(code.InvalidExpression, at, "%v", err)
	}
}

// authorityOnce reports rules that set the authority in two places.
func (c *routeConv) authorityOnce(at problem.Path, r *networking.HTTPRoute) {
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
				c.Errorf(code.ListedTwice, at.Field("headers").Field("request").Field(set.name).Key(k), "sets the authority to %q, which is already set to %q; keep one", v, have)
			}
			have = v
		}
	}
}

func isAuthority(header string) bool {
	return strings.EqualFold(header, ":authority") || strings.EqualFold(header, "host")
}

func (c *routeConv) httpMatch(at problem.Path, m *networking.HTTPMatchRequest) model.HTTPMatch {
	out := model.HTTPMatch{
		Name:            m.Name,
		URI:             c.stringMatch(at.Field("uri"), m.Uri, true),
		IgnoreURICase:   m.IgnoreUriCase,
		Scheme:          c.stringMatch(at.Field("scheme"), m.Scheme, false),
		Method:          c.stringMatch(at.Field("method"), m.Method, false),
		Authority:       c.stringMatch(at.Field("authority"), m.Authority, false),
		Headers:         c.headerMatches(at.Field("headers"), m.Headers, true),
		WithoutHeaders:  c.headerMatches(at.Field("withoutHeaders"), m.WithoutHeaders, true),
		QueryParams:     c.headerMatches(at.Field("queryParams"), m.QueryParams, false),
		Port:            m.Port,
		SourceLabels:    m.SourceLabels,
		SourceNamespace: m.SourceNamespace,
		StatPrefix:      m.StatPrefix,
		Gateways:        virtualServiceConv{c.Converter}.gateways(at.Field("gateways"), m.Gateways),
	}
	if m.Port != 0 {
		c.CheckPort(at.Field("port"), m.Port)
	}
	virtualServiceConv{c.Converter}.source(at, m.SourceLabels, m.SourceNamespace)
	return out
}

// source checks the match of a client's workload.
func (c virtualServiceConv) source(at problem.Path, labels map[string]string, ns string) {
	c.Labels(at.Field("sourceLabels"), labels)
	if ns != "" && !convert.IsLabel(ns) {
		c.Errorf(code.InvalidName, at.Field("sourceNamespace"), "%q is not a namespace", ns)
	}
}

// stringMatch is nil where nothing is said. Only the URI may have an empty prefix.
func (c *routeConv) stringMatch(at problem.Path, m *networking.StringMatch, emptyPrefix bool) *model.StringMatch {
	if m == nil || m.MatchType == nil {
		return nil
	}
	out := virtualServiceConv{c.Converter}.match(at, m)
	if out.Kind == model.MatchPrefix && out.Value == "" && !emptyPrefix {
		c.Errorf(code.EmptyValue, at.Field("prefix"), "is empty, which matches everything; leave the match out, or set a prefix")
	}
	return &out
}

func (c virtualServiceConv) match(at problem.Path, m *networking.StringMatch) model.StringMatch {
	switch v := m.GetMatchType().(type) {
	case *networking.StringMatch_Exact:
		return model.StringMatch{Kind: model.MatchExact, Value: v.Exact}
	case *networking.StringMatch_Prefix:
		return model.StringMatch{Kind: model.MatchPrefix, Value: v.Prefix}
	case *networking.StringMatch_Regex:
		if v.Regex != "*" {
			c.Regex(at.Field("regex"), v.Regex)
			return model.StringMatch{Kind: model.MatchRegex, Value: v.Regex}
		}
	}
	return model.StringMatch{Kind: model.MatchPresent} // "{}", and "*", which is not a regular expression
}

func (c *routeConv) headerMatches(at problem.Path, list map[string]*networking.StringMatch, header bool) []model.HeaderMatch {
	var out []model.HeaderMatch
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at := at.Key(name)
		if header {
			c.headerMatchName(at, name)
		} else if name == "" {
			c.Errorf(code.MissingField, at, "a query parameter needs a name")
		}
		m := virtualServiceConv{c.Converter}.match(at, list[name])
		if m.Kind == model.MatchPrefix && m.Value == "" {
			c.Errorf(code.EmptyValue, at.Field("prefix"), "is empty; write {} to match any value")
		}
		out = append(out, model.HeaderMatch{Name: name, StringMatch: m})
	}
	return out
}

func (c *routeConv) headerMatchName(at problem.Path, name string) {
	switch {
	case model.IsClaim(name) && !c.gateway:
		c.Errorf(code.NotAllowedHere, at, "claims of tokens can be matched at gateways only; bind the VirtualService to one and not to \"mesh\", or match a header")
	case model.IsClaim(name):
		if model.ClaimNames(name) == nil {
			c.Errorf(code.InvalidName, at, "%q does not name a claim; write %s[NAME], and [NAME][INNER] for a nested claim", name, model.ClaimPrefix)
		}
	case slices.Contains([]string{":method", ":scheme", ":authority", ":path"}, name):
	default:
		c.HeaderName(at, name)
	}
}
