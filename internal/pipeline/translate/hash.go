package translate

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/model"
)

var sourceIP = &routev3.RouteAction_HashPolicy{
	PolicySpecifier: &routev3.RouteAction_HashPolicy_ConnectionProperties_{
		ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{SourceIp: true},
	},
}

// sourceIPOfConnection is the only hash that connections can have.
var sourceIPOfConnection = []*typev3.HashPolicy{{
	PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}},
}}

// hashPolicies say what load balancers that hash take of a request.
func hashPolicies(list []model.HashPolicy) []*routev3.RouteAction_HashPolicy {
	var out []*routev3.RouteAction_HashPolicy
	for i := range list {
		if p := hashPolicy(&list[i]); p != nil {
			out = append(out, p)
		}
	}
	return out
}

func hashPolicy(h *model.HashPolicy) *routev3.RouteAction_HashPolicy {
	switch {
	case h.Header != "":
		return &routev3.RouteAction_HashPolicy{PolicySpecifier: &routev3.RouteAction_HashPolicy_Header_{
			Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: h.Header},
		}}
	case h.QueryParam != "":
		return &routev3.RouteAction_HashPolicy{PolicySpecifier: &routev3.RouteAction_HashPolicy_QueryParameter_{
			QueryParameter: &routev3.RouteAction_HashPolicy_QueryParameter{Name: h.QueryParam},
		}}
	case h.Cookie != nil:
		return &routev3.RouteAction_HashPolicy{PolicySpecifier: &routev3.RouteAction_HashPolicy_Cookie_{
			Cookie: hashCookie(h.Cookie),
		}}
	case h.SourceIP:
		return sourceIP
	}
	return nil
}

func hashCookie(c *model.HashCookie) *routev3.RouteAction_HashPolicy_Cookie {
	out := &routev3.RouteAction_HashPolicy_Cookie{Name: c.Name, Path: c.Path}
	if c.TTL != nil {
		out.Ttl = durationpb.New(*c.TTL)
	}
	for _, a := range c.Attributes {
		out.Attributes = append(out.Attributes, &routev3.RouteAction_HashPolicy_CookieAttribute{Name: a.Name, Value: a.Value})
	}
	return out
}
