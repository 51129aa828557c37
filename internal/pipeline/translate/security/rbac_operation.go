package security

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	uritemplatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/path/match/uri_template/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

// permissions translates a condition about the operation, one permission for each value. loose: it also matches other
// spellings that applications take for the same (likeHost, likeMethod, likeTemplate), and an unknown attribute has the value.
func permissions(c *model.AuthorizationCondition, values []string, loose bool) []*rbacv3.Permission {
	out := make([]*rbacv3.Permission, 0, len(values))
	for _, v := range values {
		out = append(out, permissionOf(c, v, loose))
	}
	return out
}

// permissionOf translates a comparison with one value.
func permissionOf(c *model.AuthorizationCondition, v string, loose bool) *rbacv3.Permission {
	switch c.Attribute {
	case model.AttributeHost:
		return headerPermission(likeHost(v, loose))
	case model.AttributeMethod:
		return headerPermission(likeMethod(v, loose))
	case model.AttributePath:
		return pathPermission(v, loose)
	case model.AttributeDestinationIP:
		return &rbacv3.Permission{Rule: &rbacv3.Permission_DestinationIp{DestinationIp: block(v)}}
	case model.AttributeDestinationPort:
		n, _ := strconv.ParseUint(v, 10, 16) // checked when it was decoded
		return &rbacv3.Permission{Rule: &rbacv3.Permission_DestinationPort{DestinationPort: uint32(n)}}
	case model.AttributeSNI:
		return &rbacv3.Permission{Rule: &rbacv3.Permission_RequestedServerName{RequestedServerName: like("", v)}}
	case model.AttributeFilterMetadata:
		return &rbacv3.Permission{Rule: &rbacv3.Permission_SourcedMetadata{SourcedMetadata: filterMetadata(c.Names, v)}}
	}
	if loose {
		return anyPermission
	}
	return noPermission
}

// like matches a value of a policy: exact, "prefix*", "*suffix", or "*", which matches any text but the empty one.
// before precedes the value, unless it is "*".
func like(before, v string) *matcherv3.StringMatcher {
	switch {
	case v == "*":
		return likeRegex(".+")
	case strings.HasPrefix(v, "*") && before != "":
		return likeRegex(regexp.QuoteMeta(before) + ".*" + regexp.QuoteMeta(v[1:]))
	case strings.HasPrefix(v, "*"):
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: v[1:]}}
	case strings.HasSuffix(v, "*"):
		return likePrefix(before + v[:len(v)-1])
	}
	return envoyproto.MatchExact(before + v)
}

func likePrefix(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: s}}
}

func likeRegex(expr string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: expr}}}
}

func likeValue(m *matcherv3.StringMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: m}}
}

// likeHeader is like for a header, but "*" matches if the header is present.
func likeHeader(name, v string, ignoreCase bool) *routev3.HeaderMatcher {
	out := &routev3.HeaderMatcher{Name: name}
	if v == "*" {
		out.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}
		return out
	}
	m := like("", v)
	m.IgnoreCase = ignoreCase
	out.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: m}
	return out
}

// likeMethod matches a method. Clients of HTTP/2 can send "delete", which HTTP/1.1 servers may take for DELETE; so
// loose ignores the case.
func likeMethod(v string, loose bool) *routev3.HeaderMatcher { return likeHeader(":method", v, loose) }

// longestHost is how long a name of DNS may be, with a wildcard and a port.
const longestHost = 255 + len("*:65535")

// likeHost matches a host in any case. Loose, it also matches the host with a port (if v has none), with the dot of the
// root, and as one of several: Envoy joins several Host headers with commas.
func likeHost(v string, loose bool) *routev3.HeaderMatcher {
	const authority = ":authority"
	if !loose || v == "*" || len(v) > longestHost {
		return likeHeader(authority, v, true)
	}
	name, before, after := v, "", ""
	switch {
	case strings.HasPrefix(v, "*"):
		name, before = v[1:], ".*"
	case strings.HasSuffix(v, "*"):
		name, after = v[:len(v)-1], ".*"
	}
	if after == "" && !strings.Contains(name, ":") {
		name, after = strings.TrimSuffix(name, "."), `\.?(:[0-9]*)?`
	}
	expr := "(?i)(.*,)?" + before + regexp.QuoteMeta(name) + after + "(,.*)?"
	return &routev3.HeaderMatcher{Name: authority, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: likeRegex(expr)}}
}

// block is an address or a CIDR block, checked when it was decoded.
func block(v string) *corev3.CidrRange {
	p, err := netip.ParsePrefix(v)
	if err != nil {
		a, _ := netip.ParseAddr(v)
		p = netip.PrefixFrom(a.WithZone(""), a.BitLen())
	}
	p = p.Masked()
	return &corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits()))}
}

func headerPermission(m *routev3.HeaderMatcher) *rbacv3.Permission {
	return &rbacv3.Permission{Rule: &rbacv3.Permission_Header{Header: m}}
}

// templateOperators replaces Istio's operators of path templates by Envoy's.
var templateOperators = strings.NewReplacer("{**}", "**", "{*}", "*")

// templateExpressions are what the operators match in loose comparisons.
var templateExpressions = strings.NewReplacer(`\{\*\*\}`, ".*", `\{\*\}`, "[^/]+")

// likeTemplate matches the paths of a template with any characters. Envoy's operators match only those that RFC 3986 has
// for paths. Clients can send others, such as "[", and servers take them.
func likeTemplate(v string) *matcherv3.StringMatcher {
	return likeRegex(templateExpressions.Replace(regexp.QuoteMeta(v)))
}

func pathPermission(v string, loose bool) *rbacv3.Permission {
	path := like("", v)
	switch template := strings.Contains(v, "{*}") || strings.Contains(v, "{**}"); {
	case template && loose:
		path = likeTemplate(v)
	case template:
		return &rbacv3.Permission{Rule: &rbacv3.Permission_UriTemplate{UriTemplate: &corev3.TypedExtensionConfig{
			Name:        "uri-template",
			TypedConfig: envoyproto.MustPack(&uritemplatev3.UriTemplateMatchConfig{PathTemplate: templateOperators.Replace(v)}),
		}}}
	}
	return &rbacv3.Permission{Rule: &rbacv3.Permission_UrlPath{
		UrlPath: &matcherv3.PathMatcher{Rule: &matcherv3.PathMatcher_Path{Path: path}},
	}}
}

// filterMetadata matches metadata of a filter. names are the filter and the keys. "[value]" matches an element of a
// list.
func filterMetadata(names []string, v string) *rbacv3.SourcedMetadata {
	value := &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_StringMatch{StringMatch: like("", strings.Trim(v, "[]"))}}
	if strings.HasPrefix(v, "[") && strings.HasSuffix(v, "]") {
		value = oneOf(value)
	}
	return &rbacv3.SourcedMetadata{MetadataMatcher: metadataAt(names[0], names[1:], value)}
}

func metadataAt(filter string, keys []string, value *matcherv3.ValueMatcher) *matcherv3.MetadataMatcher {
	out := &matcherv3.MetadataMatcher{Filter: filter, Value: value}
	for _, k := range keys {
		out.Path = append(out.Path, &matcherv3.MetadataMatcher_PathSegment{
			Segment: &matcherv3.MetadataMatcher_PathSegment_Key{Key: k},
		})
	}
	return out
}

// oneOf matches a list with an element that matches value.
func oneOf(value *matcherv3.ValueMatcher) *matcherv3.ValueMatcher {
	return &matcherv3.ValueMatcher{MatchPattern: &matcherv3.ValueMatcher_ListMatch{
		ListMatch: &matcherv3.ListMatcher{MatchPattern: &matcherv3.ListMatcher_OneOf{OneOf: value}},
	}}
}
