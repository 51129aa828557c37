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

// The HTTP filters. EnvoyFilters refer to their names, which are Envoy's.
var (
	grpcWebHTTP      = envoyproto.MustHTTPFilter("envoy.filters.http.grpc_web", &grpcwebv3.GrpcWeb{})
	faultHTTP        = envoyproto.MustHTTPFilter(route.FaultFilter, &faultv3.HTTPFault{})
	corsHTTP         = envoyproto.MustHTTPFilter(route.CORSFilter, &corsv3.Cors{})
	dormantFaultHTTP = dormant(faultHTTP)
	dormantCORSHTTP  = dormant(corsHTTP)
	forwardProxyHTTP = [...]*hcmv3.HttpFilter{
		model.IPv4: forwardProxy(model.IPv4), model.IPv6: forwardProxy(model.IPv6), model.DualStack: forwardProxy(model.DualStack),
	}
	routerHTTP = envoyproto.MustHTTPFilter("envoy.filters.http.router", &routerv3.Router{})
	// quietRouterHTTP does not count responses by cluster and code. Each count takes a dozen look-ups by name, also
	// of statistics that are not kept.
	quietRouterHTTP = envoyproto.MustHTTPFilter("envoy.filters.http.router", &routerv3.Router{DynamicStats: envoyproto.False})
	// The bare routers add no x-envoy- headers.
	bareRouterHTTP      = envoyproto.MustHTTPFilter("envoy.filters.http.router", &routerv3.Router{SuppressEnvoyHeaders: true})
	bareQuietRouterHTTP = envoyproto.MustHTTPFilter("envoy.filters.http.router", &routerv3.Router{SuppressEnvoyHeaders: true, DynamicStats: envoyproto.False})
)

func forwardProxy(f model.Families) *hcmv3.HttpFilter {
	return envoyproto.MustHTTPFilter("envoy.filters.http.dynamic_forward_proxy", &dfpfilterv3.FilterConfig{
		ImplementationSpecifier: &dfpfilterv3.FilterConfig_DnsCacheConfig{DnsCacheConfig: envoyproto.DNSCache(f)},
	})
}

// dormant is a filter that is active only for routes with a configuration of it.
func dormant(f *hcmv3.HttpFilter) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: f.Name, ConfigType: f.ConfigType, Disabled: true}
}

var websocket = []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: "websocket"}}

// outsideCertificate are the parts of x-forwarded-client-cert for clients that are not sidecars.
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
	out := &hcmv3.HttpConnectionManager{
		StatPrefix:       v.StatPrefix + envoyproto.StatDelimiter,
		HttpFilters:      slices.Concat(telemetry.PeerFilters(v), policy, filters),
		AccessLog:        log,
		UpgradeConfigs:   websocket,
		UseRemoteAddress: envoyproto.False, // the peer is a sidecar or the application, and is trusted
		// Streams may be idle for long. Routes and applications set their timeouts.
		StreamIdleTimeout: envoyproto.NoDuration,
		// The server answers "Expect: 100-continue", not the sidecar.
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
	setConnections(v.Connections, out)
	setFlushTimeout(v, out)
	if err := setEarly(v, out); err != nil {
		return nil, err
	}
	return out, setRoutes(v, out)
}

// filtersOf are the filters that routes may configure, and the router. Routes that come by RDS may configure faults
// and CORS at any time; inline routes are known. A dormant filter is active if the route that is chosen before the
// first filter configures it. So filters are dormant only if they are first: no earlier filter may choose
// another route, or wait for one.
func filtersOf(v *ir.HTTPChain, first bool) []*hcmv3.HttpFilter {
	faults, crossOrigin := faultHTTP, corsHTTP
	if first && v.Inline == nil && !v.Gateway && !v.ShardsOnDemand {
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
	}{{v.OnDemand, onDemandHTTP}, {v.GRPCWeb, grpcWebHTTP}, {withFault, faults}, {withCORS, crossOrigin}, {v.ForwardProxy, forwardProxyHTTP[v.Families]}} {
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

// httpPolicy returns the filters of a chain's policies, in Istio's order: external authorizers, tokens, and authorization
// policies, which may read what tokens claim. Plugins are before and after the filter of tokens, and last. So those without
// a phase also get requests that a fault or CORS answers, and gRPC-Web as clients send it.
func httpPolicy(v *ir.HTTPChain) ([]*hcmv3.HttpFilter, error) {
	external, err := security.ExternalHTTP(v.Authorization)
	if err != nil {
		return nil, err
	}
	tokens, err := security.JWTFilter(v.JWT, v.Gateway)
	if err != nil {
		return nil, err
	}
	decisions, err := security.RequestDecisions(v.Authorization, v.Paths).HTTPFilters()
	if err != nil {
		return nil, err
	}
	plugins, err := pluginsByPhase(v.Wasm)
	if err != nil {
		return nil, err
	}
	out := slices.Concat(external, plugins.authn)
	if tokens != nil {
		out = append(out, tokens)
	}
	return slices.Concat(out, plugins.authz, decisions, plugins.last), nil
}

// setPaths sets the normalization of paths. Policies on paths must cover the forms that it does not normalize, for
// example "/a//b" in addition to "/a/b".
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

// setDirection sets what depends on where requests come from:
//
//   - inbound: the certificate of the caller goes into a header
//   - gateway: what clients claim about addresses and certificates is replaced, unless trusted proxies precede
func setDirection(v *ir.HTTPChain, out *hcmv3.HttpConnectionManager) {
	if v.Gateway {
		out.UseRemoteAddress = envoyproto.True
		out.XffNumTrustedHops = v.Topology.TrustedProxies
		setClientCertificates(v.Topology.ClientCertificates, out)
	}
	if !v.Inbound {
		return
	}
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

// istioServer is the header "server" in responses of gateways, and of sidecars to their callers.
const istioServer = "istio-envoy"

// setHeaders applies the proxyHeaders of ProxyConfig.
func setHeaders(v *ir.HTTPChain, out *hcmv3.HttpConnectionManager) {
	h := v.Headers
	switch {
	case h.KeepServer:
		out.ServerHeaderTransformation = hcmv3.HttpConnectionManager_PASS_THROUGH
	case h.Server == "" && (v.Inbound || v.Gateway): // for applications it stays Envoy's, as in Istio
		out.ServerName = istioServer
	default:
		out.ServerName = h.Server
	}
	if h.NoRequestIDs {
		out.GenerateRequestId = envoyproto.False
	}
	out.AppendXForwardedPort = h.ForwardPort
	if h.KeepCase {
		out.HttpProtocolOptions = envoyproto.PreserveCase
	}
	if v.HTTP10 {
		out.HttpProtocolOptions = &corev3.Http1ProtocolOptions{AcceptHttp_10: true, HeaderKeyFormat: out.HttpProtocolOptions.GetHeaderKeyFormat()}
	}
}

// forwardedCertificates reads a setting, whose values are Envoy's. An unknown value is ignored.
func forwardedCertificates(setting string, otherwise hcmv3.HttpConnectionManager_ForwardClientCertDetails) hcmv3.HttpConnectionManager_ForwardClientCertDetails {
	if details, ok := hcmv3.HttpConnectionManager_ForwardClientCertDetails_value[setting]; ok {
		return hcmv3.HttpConnectionManager_ForwardClientCertDetails(details)
	}
	return otherwise
}

// setClientCertificates sets what a gateway forwards about the certificates of clients.
func setClientCertificates(setting string, out *hcmv3.HttpConnectionManager) {
	out.ForwardClientCertDetails = forwardedCertificates(setting, hcmv3.HttpConnectionManager_SANITIZE_SET)
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

// scopeKeyBuilder uses the whole header. Keys do not contain its separator.
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

// setScopes makes the connection manager choose a route configuration by the shard of the request's host, which
// setEarly writes into a header. Every connection manager receives the scopes of all, so their keys and names begin
// with the name of the whole route configuration.
func setScopes(out *hcmv3.HttpConnectionManager) {
	out.RouteSpecifier = &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmv3.ScopedRoutes{
		Name:            "scopes",
		ScopeKeyBuilder: scopeKeyBuilder,
		RdsConfigSource: envoyproto.ADS,
		ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: envoyproto.ADS}},
	}}
}

// setEarly changes headers before the route of a request is chosen. It removes headers that only a token may set,
// and sets the scope's key and the caller's workload.
func setEarly(v *ir.HTTPChain, out *hcmv3.HttpConnectionManager) error {
	var list []*mutationv3.HeaderMutation
	if v.Gateway && v.JWT != nil {
		list = security.RemoveTokenHeaders(v.JWT)
	}
	if v.ShardBits > 0 {
		form := v.RouteConfig
		if v.ShardsOnDemand {
			form = routeshard.OnDemandForm(form)
		}
		list = append(list, envoyproto.OverwriteHeader(route.ScopeHeader, routeshard.KeyFormat(form, v.ShardBits)))
	}
	if v.Telemetry != nil && v.Telemetry.SendsPeerHeader {
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
