package route

import (
	"errors"
	"fmt"
	"math"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

// grpcTimeout makes Envoy use the grpc-timeout of the client, without a maximum.
var grpcTimeout = &routev3.RouteAction_MaxStreamDuration{GrpcTimeoutHeaderMax: envoyproto.NoDuration}

// setForwarding sends requests to clusters. authority is the host that the route's header operations set.
func (rt *routing) setForwarding(v *ir.Route, out *routev3.Route, authority string) error {
	action := &routev3.RouteAction{
		HashPolicy: hashPolicies(v.Hash),
	}
	if v.Origin.Kind == model.KindHTTPRoute {
		action.ClusterNotFoundResponseCode = routev3.RouteAction_INTERNAL_SERVER_ERROR // as the Gateway API requires
	}
	setTimeouts(v, action)
	if rt.retry == nil {
		action.RetryPolicy = retryPolicy(v)
	}
	if err := setRewrite(v, action, authority); err != nil {
		return fmt.Errorf("rewrite: %w", err)
	}
	addMirrors(v, action)
	out.Action = &routev3.Route_Route{Route: action}
	err := rt.setClusters(v, out, action)
	action.AppendXForwardedHost = rt.forwardHost && action.HostRewriteSpecifier != nil
	return err
}

// setTimeouts sets the timeout of requests; Envoy's default would be 15 seconds. Envoy ignores it if max_stream_duration is
// set. Istio uses the deprecated max_grpc_timeout for that reason. gRPC clients apply their own grpc-timeout.
func setTimeouts(v *ir.Route, action *routev3.RouteAction) {
	action.Timeout, action.MaxStreamDuration = envoyproto.NoDuration, grpcTimeout
	if v.Timeout != 0 {
		action.Timeout, action.MaxStreamDuration = durationpb.New(v.Timeout), nil
	}
}

// setRewrite rewrites path and host. The authority of a rewrite overrides the one of header operations.
func setRewrite(v *ir.Route, action *routev3.RouteAction, authority string) error {
	if r := v.Rewrite; r != nil {
		if r.Authority != "" {
			authority = r.Authority
		}
		action.PrefixRewrite = r.URI
		if r.Regex != "" {
			re, err := substitution(r.Regex, r.RegexTo)
			if err != nil {
				return err
			}
			action.PrefixRewrite, action.RegexRewrite = "", re
		}
	}
	if authority != "" {
		action.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: authority}
	}
	return nil
}

func addMirrors(v *ir.Route, action *routev3.RouteAction) {
	for _, m := range v.Mirrors {
		if m.Percent <= 0 {
			continue
		}
		policy := &routev3.RouteAction_RequestMirrorPolicy{
			Cluster: m.Cluster,
			// Mirrored requests have the host of the original, and do not start a trace.
			DisableShadowHostSuffixAppend: true,
			TraceSampled:                  envoyproto.False,
		}
		if m.Percent < 100 {
			policy.RuntimeFraction = &corev3.RuntimeFractionalPercent{DefaultValue: percent(m.Percent)}
		}
		action.RequestMirrorPolicies = append(action.RequestMirrorPolicies, policy)
	}
}

// setClusters sets one cluster, or weighted clusters. The header operations of a single backend become the route's.
func (rt *routing) setClusters(v *ir.Route, out *routev3.Route, action *routev3.RouteAction) error {
	backends, err := Weighted(v.Backends)
	if err != nil {
		return err
	}
	if len(backends) == 1 {
		action.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: backends[0].Cluster}
		return mergeHeaders(backends[0], out, action)
	}
	weighted := &routev3.WeightedCluster{}
	for _, b := range backends {
		c, err := rt.clusterWeight(b, action)
		if err != nil {
			return err
		}
		weighted.Clusters = append(weighted.Clusters, c)
	}
	action.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: weighted}
	return nil
}

// Weighted returns the backends that receive requests, at least one. A single backend needs no weight.
func Weighted(list []ir.Backend) ([]*ir.Backend, error) {
	out := make([]*ir.Backend, 0, len(list))
	sum := uint64(0)
	for i := range list {
		if list[i].Weight > 0 || len(list) == 1 {
			out = append(out, &list[i])
			sum += uint64(list[i].Weight)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no destination has a weight above 0")
	}
	if sum > math.MaxUint32 {
		return nil, fmt.Errorf("sum of the weights %d: must be at most %d", sum, uint32(math.MaxUint32))
	}
	return out, nil
}

func mergeHeaders(b *ir.Backend, out *routev3.Route, action *routev3.RouteAction) error {
	request, response, err := backendHeaders(b)
	if err != nil {
		return err
	}
	out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, request.add...)
	out.RequestHeadersToRemove = append(out.RequestHeadersToRemove, request.remove...)
	out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, response.add...)
	out.ResponseHeadersToRemove = append(out.ResponseHeadersToRemove, response.remove...)
	if request.authority != "" && action.HostRewriteSpecifier == nil {
		action.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: request.authority}
	}
	return nil
}

// clusterWeight is one backend of several. It sets a host only if the route does not: Envoy would replace it by the
// route's, and put it into x-forwarded-host.
func (rt *routing) clusterWeight(b *ir.Backend, action *routev3.RouteAction) (*routev3.WeightedCluster_ClusterWeight, error) {
	request, response, err := backendHeaders(b)
	if err != nil {
		return nil, err
	}
	out := &routev3.WeightedCluster_ClusterWeight{
		Name:                    b.Cluster,
		Weight:                  wrapperspb.UInt32(b.Weight),
		RequestHeadersToAdd:     request.add,
		RequestHeadersToRemove:  request.remove,
		ResponseHeadersToAdd:    response.add,
		ResponseHeadersToRemove: response.remove,
	}
	if request.authority != "" && action.HostRewriteSpecifier == nil {
		out.HostRewriteSpecifier = &routev3.WeightedCluster_ClusterWeight_HostRewriteLiteral{
			HostRewriteLiteral: request.authority,
		}
		if rt.forwardHost {
			out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, forwardedHost())
		}
	}
	return out, nil
}

// forwardedHost replaces append_x_forwarded_host, which backends do not have. Envoy changes the headers of a backend
// before it replaces the host. Unlike append_x_forwarded_host it appends a host also if it is already the last one.
func forwardedHost() *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: "x-forwarded-host", Value: "%REQ(:AUTHORITY)%"},
		AppendAction: corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD,
	}
}

func backendHeaders(b *ir.Backend) (request, response headerOps, err error) {
	if request, err = headers(&b.Headers.Request); err != nil {
		return request, response, fmt.Errorf("destination %s: headers.request: %w", b.Cluster, err)
	}
	if response, err = headers(&b.Headers.Response); err != nil {
		return request, response, fmt.Errorf("destination %s: headers.response: %w", b.Cluster, err)
	}
	return request, response, nil
}

var sourceIP = &routev3.RouteAction_HashPolicy{
	PolicySpecifier: &routev3.RouteAction_HashPolicy_ConnectionProperties_{
		ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{SourceIp: true},
	},
}

// hashPolicies select the parts of a request that hashing load balancers use.
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
	out := &routev3.RouteAction_HashPolicy_Cookie{Name: c.Name, Path: c.Path, Ttl: envoyproto.OptionalDuration(c.TTL)}
	for _, a := range c.Attributes {
		out.Attributes = append(out.Attributes, &routev3.RouteAction_HashPolicy_CookieAttribute{Name: a.Name, Value: a.Value})
	}
	return out
}
