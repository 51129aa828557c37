package translate

import (
	"net/netip"
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// like compares with a value of a policy: exact, "prefix*", "*suffix" or "*", which is
// anything but nothing. before is what stands before the value, though not before "*".
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
	return likeExact(before + v)
}

func likeExact(s string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: s}}
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

// likeHeader is like, but "*" is only that the header is there.
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

// block is an address or a CIDR block, which decoding has checked.
func block(v string) *corev3.CidrRange {
	p, err := netip.ParsePrefix(v)
	if err != nil {
		a, _ := netip.ParseAddr(v)
		p = netip.PrefixFrom(a.WithZone(""), a.BitLen())
	}
	p = p.Masked()
	return &corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits()))}
}
