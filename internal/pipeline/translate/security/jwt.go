package security

import (
	"fmt"
	"slices"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	jwtv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/jwt_authn/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

const (
	jwtFilterName = "envoy.filters.http.jwt_authn"
	// jwtPayload is the metadata key under which the filter stores the payload of a valid token.
	jwtPayload = "payload"
)

// spaceDelimited are claims that are lists of words. Policies compare each word.
var spaceDelimited = []string{"permission", "scope"}

// JWTFilter returns the filter that checks tokens; nil: there are no rules. reroute: the route is chosen again
// with the claims of a valid token.
func JWTFilter(v *ir.JWT, reroute bool) (*hcmv3.HttpFilter, error) {
	if v == nil || len(v.Rules) == 0 {
		return nil, nil
	}
	return envoyproto.HTTPFilter(jwtFilterName, jwtAuthentication(v, reroute))
}

// jwtAuthentication requires each token of a request to be valid; a request may have none. With several rules that
// read a token from the same place, one of them must accept it.
func jwtAuthentication(v *ir.JWT, reroute bool) *jwtv3.JwtAuthentication {
	out := &jwtv3.JwtAuthentication{Providers: map[string]*jwtv3.JwtProvider{}, BypassCorsPreflight: true}
	var valid, validOrMissing []*jwtv3.JwtRequirement
	for i := range v.Rules {
		name := fmt.Sprintf("origins-%d", i)
		out.Providers[name] = jwtProvider(&v.Rules[i])
		out.Providers[name].ClearRouteCache = reroute
		is := &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_ProviderName{ProviderName: name}}
		valid = append(valid, is)
		validOrMissing = append(validOrMissing, anyRequirement(is, missing))
	}
	requires := validOrMissing[0]
	if len(v.Rules) > 1 {
		requires = anyRequirement(append(valid, &jwtv3.JwtRequirement{
			RequiresType: &jwtv3.JwtRequirement_RequiresAll{RequiresAll: &jwtv3.JwtRequirementAndList{Requirements: validOrMissing}},
		})...)
	}
	out.Rules = []*jwtv3.RequirementRule{{
		Match:           &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		RequirementType: &jwtv3.RequirementRule_Requires{Requires: requires},
	}}
	return out
}

var missing = &jwtv3.JwtRequirement{RequiresType: &jwtv3.JwtRequirement_AllowMissing{AllowMissing: &emptypb.Empty{}}}

func anyRequirement(list ...*jwtv3.JwtRequirement) *jwtv3.JwtRequirement {
	return &jwtv3.JwtRequirement{
		RequiresType: &jwtv3.JwtRequirement_RequiresAny{RequiresAny: &jwtv3.JwtRequirementOrList{Requirements: list}},
	}
}

func jwtProvider(r *ir.JWTRule) *jwtv3.JwtProvider {
	keys := r.Keys
	if keys == "" {
		keys = model.NoKeys
	}
	words := append(slices.Clone(spaceDelimited), r.SpaceDelimited...)
	slices.Sort(words)
	out := &jwtv3.JwtProvider{
		Issuer: r.Issuer, Audiences: r.Audiences, Forward: r.Forward, ForwardPayloadHeader: r.PayloadToHeader,
		FromParams: r.FromParams, FromCookies: r.FromCookies, PayloadInMetadata: jwtPayload,
		NormalizePayloadInMetadata: &jwtv3.JwtProvider_NormalizePayload{SpaceDelimitedClaims: slices.Compact(words)},
		JwksSourceSpecifier: &jwtv3.JwtProvider_LocalJwks{LocalJwks: &corev3.DataSource{
			Specifier: &corev3.DataSource_InlineString{InlineString: keys},
		}},
	}
	for _, h := range r.FromHeaders {
		out.FromHeaders = append(out.FromHeaders, &jwtv3.JwtHeader{Name: h.Name, ValuePrefix: h.Prefix})
	}
	for _, h := range r.ClaimsToHeaders {
		out.ClaimToHeaders = append(out.ClaimToHeaders, &jwtv3.JwtClaimToHeader{HeaderName: h.Header, ClaimName: h.Claim})
	}
	return out
}

// RemoveTokenHeaders removes the headers that only tokens may set, before a route is chosen for the first time. The
// filter itself removes them too late, and without a token the route is not chosen again.
func RemoveTokenHeaders(v *ir.JWT) (out []*mutationv3.HeaderMutation) {
	var names []string
	for i := range v.Rules {
		names = append(names, v.Rules[i].PayloadToHeader)
		for _, h := range v.Rules[i].ClaimsToHeaders {
			names = append(names, h.Header)
		}
	}
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		if n != "" {
			out = append(out, &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Remove{Remove: n}})
		}
	}
	return out
}
