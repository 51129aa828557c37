package listener

import (
	"slices"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	dfpfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/dynamic_forward_proxy/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/pipeline/translate/route"
	"github.com/moonsail/moonsail/internal/pipeline/translate/security"
	"github.com/moonsail/moonsail/internal/pipeline/translate/telemetry"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
)

// setEarly changes headers before anything looks at a request, also the choice of its route: what only tokens may tell
// goes, and the bucket and who calls are set.
func setEarly(v *ir.HTTPChain, out *hcmv3.HttpConnectionManager) error {
	var list []*mutationv3.HeaderMutation
	if v.Gateway && v.JWT != nil {
		list = security.RemoveTokenHeaders(v.JWT)
	}
	if v.ShardBits > 0 {
		list = append(list, envoyproto.OverwriteHeader(route.ScopeHeader, routeshard.KeyFormat(v.RouteConfig, v.ShardBits)))
	}
	if v.Telemetry != nil && v.Telemetry.TellsPeer {
		list = append(list, telemetry.SetPeerHeader)
	}
	if len(list) == 0 {
		return nil
	}
	m := &earlyv3.HeaderMutation{Mutations: list}
	if err := m.Validate(); err != nil {
		return err
	}
	early, err := envoyproto.Pack(m)
	out.EarlyHeaderMutationExtensions = []*corev3.TypedExtensionConfig{{
		Name: "envoy.http.early_header_mutation.header_mutation", TypedConfig: early,
	}}
	return err
}

// The HTTP filters. Names are Envoy's, to which EnvoyFilters refer.
var (
	grpcWebHTTP      = envoyproto.MustHTTPFilter("envoy.filters.http.grpc_web", &grpcwebv3.GrpcWeb{})
	faultHTTP        = envoyproto.MustHTTPFilter(route.FaultFilter, &faultv3.HTTPFault{})
	corsHTTP         = envoyproto.MustHTTPFilter(route.CORSFilter, &corsv3.Cors{})
	dormantFaultHTTP = dormant(faultHTTP)
	dormantCORSHTTP  = dormant(corsHTTP)
	forwardProxyHTTP = envoyproto.MustHTTPFilter("envoy.filters.http.dynamic_forward_proxy", &dfpfilterv3.FilterConfig{
		ImplementationSpecifier: &dfpfilterv3.FilterConfig_DnsCacheConfig{DnsCacheConfig: envoyproto.DNSCache},
	})
	routerHTTP = envoyproto.MustHTTPFilter("envoy.filters.http.router", &routerv3.Router{})
	// quietRouterHTTP counts no answers by cluster and code: each takes a dozen look-ups by
	// name, also of statistics that are not kept.
	quietRouterHTTP = envoyproto.MustHTTPFilter("envoy.filters.http.router", &routerv3.Router{DynamicStats: envoyproto.False})
	// those that are bare add no x-envoy- headers.
	bareRouterHTTP      = envoyproto.MustHTTPFilter("envoy.filters.http.router", &routerv3.Router{SuppressEnvoyHeaders: true})
	bareQuietRouterHTTP = envoyproto.MustHTTPFilter("envoy.filters.http.router", &routerv3.Router{SuppressEnvoyHeaders: true, DynamicStats: envoyproto.False})
)

// dormant is a filter that requests meet only where their route has a configuration for it.
func dormant(f *hcmv3.HttpFilter) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: f.Name, ConfigType: f.ConfigType, Disabled: true}
}

var websocket = []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}}

// outsideCertificate is likewise, of clients that are no sidecars.
var outsideCertificate = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{Subject: envoyproto.True, Cert: true, Uri: true, Dns: true}

func httpFilters(v *ir.HTTPChain) ([]*listenerv3.Filter, error) {
	manager, err := connectionManager(v)
	if err != nil {
		return nil, err
	}
	f, err := envoyproto.NetworkFilter("envoy.filters.network.http_connection_manager", manager)
	if err != nil {
		return nil, err
	}
	return []*listenerv3.Filter{f}, nil
}

func connectionManager(v *ir.HTTPChain) (*hcmv3.HttpConnectionManager, error) {
	log, err := telemetry.HTTPLogs(v)
	if err != nil {
		return nil, err
	}
	policy, err := httpPolicy(v)
	if err != nil {
		return nil, err
	}
	filters := filtersOf(v, len(policy) == 0 && v.Wasm == nil)
	if v.Wasm != nil {
		if filters, err = beforeRouter(filters, v.Wasm); err != nil {
			return nil, err
		}
	}
	out := &hcmv3.HttpConnectionManager{
		StatPrefix:       v.StatPrefix + envoyproto.StatDelimiter,
		HttpFilters:      slices.Concat(telemetry.PeerFilters(v), policy, filters),
		AccessLog:        log,
		UpgradeConfigs:   websocket,
		UseRemoteAddress: envoyproto.False, // the peer is a sidecar or the application: what they say holds
		// Streams may be silent for long; routes and applications have timeouts of their own.
		StreamIdleTimeout: envoyproto.NoDuration,
		// The server decides whether it wants the body, not the sidecar.
		Proxy_100Continue: true,
	}
	setPaths(v.Paths, out)
	setDirection(v, out)
	setHeaders(v, out)
	telemetry.SetTracing(v.Telemetry, out)
	if v.IdleTimeout != nil {
		out.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: durationpb.New(*v.IdleTimeout)}
	}
	if v.MaxConcurrentStreams != 0 || v.FromMesh {
		out.Http2ProtocolOptions = &corev3.Http2ProtocolOptions{
			MaxConcurrentStreams: envoyproto.UInt32(v.MaxConcurrentStreams), AllowConnect: v.FromMesh,
		}
	}
	if err := setEarly(v, out); err != nil {
		return nil, err
	}
	return out, setRoutes(v, out)
}

// httpPolicy returns the filters of a chain's policies, in Istio's order: external authorizers, tokens, and
// authorization policies, which may read what tokens claim. Plugins are before and after those that authenticate.
func httpPolicy(v *ir.HTTPChain) ([]*hcmv3.HttpFilter, error) {
	out, err := security.ExternalHTTP(v.Authorization)
	if err != nil {
		return nil, err
	}
	tokens, err := security.JWTFilter(v.JWT, v.Gateway)
	if err != nil {
		return nil, err
	}
	if tokens != nil {
		out = append(out, tokens)
	}
	if v.Wasm != nil {
		if out, err = between(out, v.Wasm.Authn, v.Wasm.Authz); err != nil {
			return nil, err
		}
	}
	decisions, err := security.DecisionsOf(v.Authorization, false).HTTPFilters()
	return append(out, decisions...), err
}

// setPaths: what normalization leaves alone policies on paths have to know of, "/a//b" beside "/a/b".
func setPaths(p model.PathNormalization, out *hcmv3.HttpConnectionManager) {
	out.NormalizePath = envoyproto.True
	switch p {
	case model.PathsAsTheyAre:
		out.NormalizePath = envoyproto.False
	case model.PathsMerged:
		out.MergeSlashes = true
	case model.PathsDecodeSlash:
		out.MergeSlashes = true
		out.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD
	}
}

// setDirection: inbound requests are told whose certificate they came with, and their
// responses keep the application's server header. Outbound ones may name a host with a
// trailing dot: virtual hosts need not list that as well. What clients of a gateway say of
// addresses and certificates is replaced by what it sees, but for what trusted proxies before it say.
func setDirection(v *ir.HTTPChain, out *hcmv3.HttpConnectionManager) {
	if v.Gateway {
		out.UseRemoteAddress = envoyproto.True
		out.XffNumTrustedHops = v.Topology.TrustedProxies
		setClientCertificates(v.Topology.ClientCertificates, out)
	}
	if !v.Inbound {
		out.StripTrailingHostDot = true
		return
	}
	out.ServerHeaderTransformation = hcmv3.HttpConnectionManager_PASS_THROUGH
	if v.Outside {
		out.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE_SET
		out.SetCurrentClientCertDetails = outsideCertificate
		return
	}
	out.ForwardClientCertDetails = forwardedCertificates(v.Headers.ClientCertificates, hcmv3.HttpConnectionManager_APPEND_FORWARD)
	d := v.Headers.CertificateDetails()
	out.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{
		Subject: wrapperspb.Bool(d.Subject), Cert: d.Cert, Chain: d.Chain, Dns: d.DNS, Uri: d.URI,
	}
}

// istioServer is the header "server" of responses to requests that come in, where it is asked for without a name.
const istioServer = "istio-envoy"

// setHeaders does what is said of headers; where nothing is, the application's and Envoy's hold.
func setHeaders(v *ir.HTTPChain, out *hcmv3.HttpConnectionManager) {
	h := v.Headers
	switch {
	case !h.ServerSaid:
	case h.KeepServer:
		out.ServerHeaderTransformation = hcmv3.HttpConnectionManager_PASS_THROUGH
	default:
		out.ServerHeaderTransformation, out.ServerName = hcmv3.HttpConnectionManager_OVERWRITE, h.Server
		if h.Server == "" && (v.Inbound || v.Gateway) {
			out.ServerName = istioServer
		}
	}
	if h.NoRequestIDs {
		out.GenerateRequestId = envoyproto.False
	}
	out.AppendXForwardedPort = h.ForwardPort
	if h.KeepCase {
		out.HttpProtocolOptions = envoyproto.PreserveCase
	}
}

// forwardedCertificates: Istio's words are Envoy's. Words that are not known are as none.
func forwardedCertificates(said string, otherwise hcmv3.HttpConnectionManager_ForwardClientCertDetails) hcmv3.HttpConnectionManager_ForwardClientCertDetails {
	if details, ok := hcmv3.HttpConnectionManager_ForwardClientCertDetails_value[said]; ok {
		return hcmv3.HttpConnectionManager_ForwardClientCertDetails(details)
	}
	return otherwise
}

// setClientCertificates is a gateway's.
func setClientCertificates(said string, out *hcmv3.HttpConnectionManager) {
	out.ForwardClientCertDetails = forwardedCertificates(said, hcmv3.HttpConnectionManager_SANITIZE_SET)
	switch out.ForwardClientCertDetails {
	case hcmv3.HttpConnectionManager_APPEND_FORWARD, hcmv3.HttpConnectionManager_SANITIZE_SET:
		out.SetCurrentClientCertDetails = outsideCertificate
	}
}

func setRoutes(v *ir.HTTPChain, out *hcmv3.HttpConnectionManager) error {
	if v.ShardBits > 0 {
		setScopes(out)
		return nil
	}
	if v.Inline == nil {
		out.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{
			Rds: &hcmv3.Rds{ConfigSource: envoyproto.ADS, RouteConfigName: v.RouteConfig},
		}
		return nil
	}
	routes, err := route.Inline(v.Inline)
	if err != nil {
		return err
	}
	out.RouteSpecifier = &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: routes}
	return nil
}

// filtersOf are the filters that routes may configure, and the router. Routes that come by
// RDS may ask for faults and CORS at any time; inline ones are known. Which filters a request
// meets is decided by the route that it has before the first of them: filters are dormant
// only where none before the router may have another route chosen.
func filtersOf(v *ir.HTTPChain, first bool) []*hcmv3.HttpFilter {
	faults, crossOrigin := faultHTTP, corsHTTP
	if first && v.Inline == nil && !v.Gateway {
		faults, crossOrigin = dormantFaultHTTP, dormantCORSHTTP
	}
	withFault, withCORS := v.Inline == nil, v.Inline == nil
	if v.Inline != nil {
		for _, h := range v.Inline.VirtualHosts {
			for i := range h.Routes {
				withFault = withFault || h.Routes[i].Fault != nil
				withCORS = withCORS || h.Routes[i].CORS != nil
			}
		}
	}
	var out []*hcmv3.HttpFilter
	for _, f := range []struct {
		wanted bool
		filter *hcmv3.HttpFilter
	}{{v.GRPCWeb, grpcWebHTTP}, {withFault, faults}, {withCORS, crossOrigin}, {v.ForwardProxy, forwardProxyHTTP}} {
		if f.wanted {
			out = append(out, f.filter)
		}
	}
	return append(out, routerFilter(v))
}

func routerFilter(v *ir.HTTPChain) *hcmv3.HttpFilter {
	switch {
	case v.Headers.NoDebug && v.Uncounted:
		return bareQuietRouterHTTP
	case v.Headers.NoDebug:
		return bareRouterHTTP
	case v.Uncounted:
		return quietRouterHTTP
	}
	return routerHTTP
}

// scopeKeyBuilder takes the header as a whole. Its separator is in no key.
var scopeKeyBuilder = &hcmv3.ScopedRoutes_ScopeKeyBuilder{
	Fragments: []*hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder{{
		Type: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_{
			HeaderValueExtractor: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor{
				Name:        route.ScopeHeader,
				ExtractType: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_Index{},
			},
		},
	}},
}

// setScopes makes the connection manager choose a route configuration by the bucket of the
// request's host, which setEarly has put into a header. Every connection manager gets the scopes of all, so that their keys, as
// their names, begin with the whole route configuration's name.
func setScopes(out *hcmv3.HttpConnectionManager) {
	out.RouteSpecifier = &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmv3.ScopedRoutes{
		Name:            "scopes",
		ScopeKeyBuilder: scopeKeyBuilder,
		RdsConfigSource: envoyproto.ADS,
		ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: envoyproto.ADS}},
	}}
}
