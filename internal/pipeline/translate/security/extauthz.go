package security

import (
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	extauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	rbachttpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	extauthztcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	rbactcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

// An external authorizer is a pair of filters. An RBAC filter writes the name of the policy that matches a request
// into metadata, without a decision. The next filter asks the provider if that name begins with the provider's prefix.

func providerPrefix(provider string) string { return "istio-ext-authz-" + provider + "-" }

// customRules select the requests about which a provider is asked. Their action refuses these requests if there is no
// provider. nil: no policy is in force.
func customRules(v *ir.Authorization, c *ir.ExternalAuthorization, tcp bool) *rbacv3.RBAC {
	r := &rules{trustDomains: v.TrustDomains, tcp: tcp, prefix: providerPrefix(c.Name)}
	if c.Conflicts {
		r.suffix = "-several-providers"
	}
	return r.rbac(rbacv3.RBAC_DENY, c.Policies, false)
}

// ExternalHTTP returns the filters of external authorizers for requests.
func ExternalHTTP(v *ir.Authorization) ([]*hcmv3.HttpFilter, error) {
	if v == nil {
		return nil, nil
	}
	var out []*hcmv3.HttpFilter
	for i := range v.Custom {
		c := &v.Custom[i]
		rules := customRules(v, c, false)
		if rules == nil {
			continue
		}
		finds := &rbachttpv3.RBAC{ShadowRules: rules, ShadowRulesStatPrefix: extAuthzPrefix}
		if c.Provider == nil {
			finds = &rbachttpv3.RBAC{Rules: rules}
		}
		f, err := envoyproto.HTTPFilter(rbacHTTPFilter, finds)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
		if c.Provider == nil {
			continue
		}
		if f, err = envoyproto.HTTPFilter(extAuthzHTTPFilter, extAuthz(c)); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// ExternalTCP returns the filters of external authorizers for connections. It leaves out HTTP providers, as Istio
// does.
func ExternalTCP(v *ir.Authorization) ([]*listenerv3.Filter, error) {
	if v == nil {
		return nil, nil
	}
	var out []*listenerv3.Filter
	for i := range v.Custom {
		c := &v.Custom[i]
		rules := customRules(v, c, true)
		if rules == nil || c.Provider != nil && c.Provider.HTTP != nil {
			continue
		}
		finds := &rbactcpv3.RBAC{StatPrefix: tcpStats, ShadowRules: rules, ShadowRulesStatPrefix: extAuthzPrefix}
		if c.Provider == nil {
			finds = &rbactcpv3.RBAC{StatPrefix: tcpStats, Rules: rules}
		}
		f, err := envoyproto.NetworkFilter(rbacTCPFilter, finds)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
		if c.Provider == nil {
			continue
		}
		f, err = envoyproto.NetworkFilter(extAuthzTCPFilter, &extauthztcpv3.ExtAuthz{
			StatPrefix: tcpStats, FailureModeAllow: c.Provider.FailOpen, TransportApiVersion: corev3.ApiVersion_V3,
			GrpcService: grpcAuthorizer(c), FilterEnabledMetadata: foundBy(rbacTCPFilter, c.Name),
		})
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// foundBy matches if the preceding RBAC filter has found a policy of the provider. Names continue with "ns[", so the
// name of one provider may be a prefix of another's.
func foundBy(filter, provider string) *matcherv3.MetadataMatcher {
	return metadataAt(filter, []string{extAuthzPrefix + "shadow_effective_policy_id"}, likeValue(likePrefix(providerPrefix(provider)+"ns[")))
}

func extAuthz(c *ir.ExternalAuthorization) *extauthzv3.ExtAuthz {
	p := c.Provider
	out := &extauthzv3.ExtAuthz{
		FailureModeAllow: p.FailOpen, ClearRouteCache: p.ClearRouteCache, TransportApiVersion: corev3.ApiVersion_V3,
		FilterEnabledMetadata: foundBy(rbacHTTPFilter, c.Name),
	}
	if p.StatusOnError != 0 {
		out.StatusOnError = &typev3.HttpStatus{Code: typev3.StatusCode(p.StatusOnError)}
	}
	if b := p.Body; b != nil {
		out.WithRequestBody = &extauthzv3.BufferSettings{
			MaxRequestBytes: b.MaxBytes, AllowPartialMessage: b.Partial, PackAsBytes: b.AsBytes,
		}
	}
	if p.HTTP == nil {
		out.Services = &extauthzv3.ExtAuthz_GrpcService{GrpcService: grpcAuthorizer(c)}
		return out
	}
	out.AllowedHeaders = likeHeaders(p.HTTP.Sent)
	out.Services = &extauthzv3.ExtAuthz_HttpService{HttpService: httpAuthorizer(c)}
	return out
}

func grpcAuthorizer(c *ir.ExternalAuthorization) *corev3.GrpcService {
	return &corev3.GrpcService{
		TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
			ClusterName: c.Cluster, Authority: string(c.Provider.Host),
		}},
		Timeout: durationpb.New(c.Provider.Timeout),
	}
}

func httpAuthorizer(c *ir.ExternalAuthorization) *extauthzv3.HttpService {
	h := c.Provider.HTTP
	out := &extauthzv3.HttpService{
		PathPrefix: h.PathPrefix,
		ServerUri: &corev3.HttpUri{
			// Envoy requires a URI, but uses the cluster.
			Uri: "http://" + string(c.Provider.Host), Timeout: durationpb.New(c.Provider.Timeout),
			HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: c.Cluster},
		},
	}
	if len(h.Added) > 0 {
		out.AuthorizationRequest = &extauthzv3.AuthorizationRequest{HeadersToAdd: headerValues(h.Added)}
	}
	if len(h.ToUpstream)+len(h.ToClientOnAllow)+len(h.ToClientOnDeny) > 0 {
		out.AuthorizationResponse = &extauthzv3.AuthorizationResponse{
			AllowedUpstreamHeaders: likeHeaders(h.ToUpstream), AllowedClientHeaders: likeHeaders(h.ToClientOnDeny),
			AllowedClientHeadersOnSuccess: likeHeaders(h.ToClientOnAllow),
		}
	}
	return out
}

func headerValues(values map[string]string) []*corev3.HeaderValue {
	out := make([]*corev3.HeaderValue, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out = append(out, &corev3.HeaderValue{Key: name, Value: values[name]})
	}
	return out
}

// likeHeaders matches names of headers; nil: none.
func likeHeaders(names []string) *matcherv3.ListStringMatcher {
	if len(names) == 0 {
		return nil
	}
	out := &matcherv3.ListStringMatcher{}
	for _, n := range names {
		m := like("", strings.ToLower(n))
		m.IgnoreCase = true
		out.Patterns = append(out.Patterns, m)
	}
	return out
}
