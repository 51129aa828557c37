package istio

import (
	"cmp"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/convert"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// collector is a provider that is a service.
type collector interface {
	GetService() string
	GetPort() uint32
}

// provider converts one of extensionProviders; nil for those that are not about telemetry,
// and for those without effect here, which get a warning.
func (c providerConv) provider(at problem.Path, p *meshconfig.MeshConfig_ExtensionProvider) *model.Provider {
	out := &model.Provider{Name: p.GetName()}
	switch v := p.GetProvider().(type) {
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyExtAuthzHttp, *meshconfig.MeshConfig_ExtensionProvider_EnvoyExtAuthzGrpc:
		return nil
	case *meshconfig.MeshConfig_ExtensionProvider_Prometheus:
		out.Kind = model.ProviderPrometheus
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLog:
		c.fileLog(at.Field("envoyFileAccessLog"), v.EnvoyFileAccessLog, out)
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyOtelAls:
		c.otelLog(at.Field("envoyOtelAls"), v.EnvoyOtelAls, out)
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyHttpAls:
		c.httpLog(at.Field("envoyHttpAls"), v.EnvoyHttpAls, out)
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyTcpAls:
		out.Kind, out.LogName, out.FilterState = model.ProviderTCPLog, v.EnvoyTcpAls.LogName, v.EnvoyTcpAls.FilterStateObjectsToLog
		c.collector(at.Field("envoyTcpAls"), v.EnvoyTcpAls, out)
	case *meshconfig.MeshConfig_ExtensionProvider_Zipkin:
		c.zipkin(at.Field("zipkin"), v.Zipkin, out)
	case *meshconfig.MeshConfig_ExtensionProvider_Opentelemetry:
		c.openTelemetry(at.Field("opentelemetry"), v.Opentelemetry, out)
	case *meshconfig.MeshConfig_ExtensionProvider_Datadog:
		out.Kind, out.MaxTagLength = model.ProviderDatadog, v.Datadog.MaxTagLength
		c.collector(at.Field("datadog"), v.Datadog, out)
	case *meshconfig.MeshConfig_ExtensionProvider_Skywalking:
		out.Kind, out.Token = model.ProviderSkyWalking, v.Skywalking.AccessToken
		c.collector(at.Field("skywalking"), v.Skywalking, out)
	default:
		c.Warnf(code.NotSupported, at, "%q is of a kind that has no effect in Moonsail; use prometheus, envoyFileAccessLog, envoyOtelAls, "+
			"envoyHttpAls, envoyTcpAls, zipkin, opentelemetry, datadog or skywalking", p.GetName())
		return nil
	}
	if out.Name == "" {
		c.Errorf(code.MissingField, at.Field("name"), "is missing; Telemetry and defaultProviders refer to providers by name")
	}
	return out
}

// collector takes over which service it is: "host" or "namespace/host".
func (c providerConv) collector(at problem.Path, from collector, out *model.Provider) {
	ns, host, both := strings.Cut(from.GetService(), "/")
	if !both {
		ns, host = "", ns
	}
	c.CheckHost(at.Field("service"), host, false)
	c.CheckPort(at.Field("port"), from.GetPort())
	out.Namespace, out.Host, out.Port = ns, model.Host(strings.ToLower(host)), from.GetPort()
}

func (c providerConv) fileLog(at problem.Path, v *meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider, out *model.Provider) {
	out.Kind, out.Log = model.ProviderFileLog, model.LogFormat{Path: cmp.Or(v.Path, "/dev/stdout"), OmitEmpty: v.OmitEmptyValues}
	at = at.Field("logFormat")
	switch f := v.GetLogFormat().GetLogFormat().(type) {
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Text:
		out.Log.Text = telemetryConv(c).logText(at.Field("text"), f.Text)
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Labels:
		if out.Log.JSON = telemetryConv(c).logLabels(at.Field("labels"), f.Labels); len(f.Labels.GetFields()) == 0 {
			out.Log.JSON = defaultJSONLog
		}
	}
}

func (c providerConv) otelLog(at problem.Path, v *meshconfig.MeshConfig_ExtensionProvider_EnvoyOpenTelemetryLogProvider, out *model.Provider) {
	out.Kind, out.LogName = model.ProviderOTelLog, v.LogName
	c.collector(at, v, out)
	out.Log.Text = telemetryConv(c).logText(at.Field("logFormat").Field("text"), v.GetLogFormat().GetText())
	out.Log.JSON = telemetryConv(c).logLabels(at.Field("logFormat").Field("labels"), v.GetLogFormat().GetLabels())
}

func (c providerConv) httpLog(at problem.Path, v *meshconfig.MeshConfig_ExtensionProvider_EnvoyHttpGrpcV3LogProvider, out *model.Provider) {
	out.Kind, out.LogName, out.FilterState = model.ProviderHTTPLog, v.LogName, v.FilterStateObjectsToLog
	out.RequestHeaders, out.ResponseHeaders = v.AdditionalRequestHeadersToLog, v.AdditionalResponseHeadersToLog
	out.Trailers = v.AdditionalResponseTrailersToLog
	c.collector(at, v, out)
}

func (c providerConv) zipkin(at problem.Path, v *meshconfig.MeshConfig_ExtensionProvider_ZipkinTracingProvider, out *model.Provider) {
	out.Kind, out.MaxTagLength, out.ShortIDs = model.ProviderZipkin, v.MaxTagLength, v.Enable_64BitTraceId
	out.W3C = v.TraceContextOption == meshconfig.MeshConfig_ExtensionProvider_ZipkinTracingProvider_USE_B3_WITH_W3C_PROPAGATION
	out.Path = c.collectorPath(at.Field("path"), cmp.Or(v.Path, "/api/v2/spans"))
	out.Timeout = c.Duration(at.Field("timeout"), v.Timeout)
	out.Headers = c.collectorHeaders(at.Field("headers"), v.Headers)
	c.collector(at, v, out)
}

func (c providerConv) openTelemetry(at problem.Path, v *meshconfig.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider, out *model.Provider) {
	out.Kind, out.MaxTagLength = model.ProviderOpenTelemetry, v.MaxTagLength
	c.collector(at, v, out)
	switch {
	case v.Http != nil && v.Grpc != nil:
		c.Errorf(code.ExclusiveFields, at, "has both http and grpc; keep one")
	case v.Http != nil:
		out.Path = c.collectorPath(at.Field("http").Field("path"), cmp.Or(v.Http.Path, "/v1/traces"))
		out.Timeout = c.Duration(at.Field("http").Field("timeout"), v.Http.Timeout)
		out.Headers = c.collectorHeaders(at.Field("http").Field("headers"), v.Http.Headers)
	case v.Grpc != nil:
		out.Timeout = c.Duration(at.Field("grpc").Field("timeout"), v.Grpc.Timeout)
		out.Headers = c.collectorHeaders(at.Field("grpc").Field("initialMetadata"), v.Grpc.InitialMetadata)
	}
	if v.ServiceAttributeEnrichment == meshconfig.MeshConfig_ExtensionProvider_OTEL_SEMANTIC_CONVENTIONS {
		c.Warnf(code.NotSupported, at.Field("serviceAttributeEnrichment"), "has no effect in Moonsail: spans have a name for each workload, app.namespace; "+
			"set OTEL_RESOURCE_ATTRIBUTES with another service.name in proxyMetadata")
	}
	if v.Sampling != nil {
		c.Warnf(code.NotSupported, at.Field("dynatraceSampler"), "has no effect in Moonsail; use randomSamplingPercentage")
	}
	if v.GetResourceDetectors().GetDynatrace() != nil {
		c.Warnf(code.NotSupported, at.Field("resourceDetectors").Field("dynatrace"), "has no effect in Moonsail; it is left out")
	}
}

func (c providerConv) collectorPath(at problem.Path, p string) string {
	if !strings.HasPrefix(p, "/") {
		c.Errorf(code.InvalidFormat, at, "%q is not a path; begin it with \"/\"", p)
	}
	return p
}

// collectorHeaders converts headers. As in Istio, variables are those of the control plane.
func (c providerConv) collectorHeaders(at problem.Path, list []*meshconfig.MeshConfig_ExtensionProvider_HttpHeader) []model.CollectorHeader {
	var out []model.CollectorHeader
	for i, h := range list {
		at := at.Index(i)
		c.HeaderName(at.Field("name"), h.GetName())
		c.PlainText(at.Field("value"), h.GetValue())
		v := model.CollectorHeader{Name: h.GetName(), Value: h.GetValue(), EnvName: h.GetEnvName()}
		if v.EnvName != "" && c.Getenv != nil {
			v.Secret = c.secretOf(at.Field("envName"), v.EnvName)
		}
		out = append(out, v)
	}
	return out
}

// secretOf returns the value of a variable of the control plane, if a header can have it.
func (c providerConv) secretOf(at problem.Path, name string) model.PrivateKey {
	value := strings.TrimSpace(c.Getenv(name))
	if value == "" || strings.ContainsFunc(value, unicode.IsControl) {
		c.Warnf(code.NoEffect, at, "the control plane has no environment variable %q with a value that a header can have; "+
			"the header is left out: set it in the control plane's Pods", name)
		return model.PrivateKey{}
	}
	return model.NewPrivateKey(value)
}

// defaultTracing converts the tracing of defaultConfig, Istio's way before it had providers: spans go to zipkin unless
// enableTracing is given as false, and the rest are defaults for all providers.
func (c providerConv) defaultTracing(at problem.Path, settings *meshconfig.MeshConfig, given bool, out *model.MeshTelemetry) {
	t := settings.GetDefaultConfig().GetTracing()
	out.MaxTagLength = t.GetMaxPathTagLength()
	if s := t.GetSampling(); s != 0 {
		if s < 0 || s > 100 {
			c.Errorf(code.InvalidNumber, at.Field("sampling"), "%v is not a percentage; use 0 to 100", s)
		}
		out.Sampling = s
	}
	out.NoIstioTags = t.GetEnableIstioTags() != nil && !t.EnableIstioTags.Value
	out.Tags = c.proxyTags(at.Field("customTags"), t.GetCustomTags())
	zipkin := t.GetZipkin()
	if given && !settings.EnableTracing || !given && zipkin == nil {
		return
	}
	if zipkin == nil {
		named := len(out.Tracing) > 0 || slices.ContainsFunc(out.Providers, func(p model.Provider) bool { return p.Kind.IsTracing() })
		if !named { // else Telemetries or defaultProviders say which providers get spans
			c.Warnf(code.NoEffect, at, "has no zipkin, to which enableTracing would send spans; name a provider in defaultProviders.tracing instead")
		}
		return
	}
	host, port, err := net.SplitHostPort(zipkin.Address)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || n == 0 {
		c.Errorf(code.InvalidFormat, at.Field("zipkin").Field("address"), "%q is not of the form host:port", zipkin.Address)
		return
	}
	if parts := strings.Split(host, "."); len(parts) == 2 { // service.namespace
		host += ".svc." + c.Domain
	}
	out.Collector = &model.Provider{
		Name: "zipkin", Kind: model.ProviderZipkin, Host: model.Host(host), Port: uint32(n), Path: "/api/v2/spans",
	}
}

func (c providerConv) proxyTags(at problem.Path, tags map[string]*meshconfig.Tracing_CustomTag) map[string]model.TraceTag {
	var out map[string]model.TraceTag
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		if out == nil {
			out = map[string]model.TraceTag{}
		}
		t := tags[name]
		tag := model.TraceTag{
			Literal: t.GetLiteral().GetValue(), Header: t.GetHeader().GetName(), Environment: t.GetEnvironment().GetName(),
			Default: t.GetHeader().GetDefaultValue() + t.GetEnvironment().GetDefaultValue(),
		}
		if tag.Literal == "" && tag.Header == "" && tag.Environment == "" {
			c.Errorf(code.MissingField, at.Key(name), "has no value; set one of literal, environment and header")
		}
		out[name] = tag
	}
	return out
}

// authorizerTimeout is Istio's default: authorizers may ask people.
const authorizerTimeout = 10 * time.Minute

// maxProviderName is what Istio lets names of providers have.
const maxProviderName = 63

// externalAuthorizers are the providers of MeshConfig that decide about calls; other kinds of
// providers are not for here.
func (c providerConv) externalAuthorizers(at problem.Path, list []*meshconfig.MeshConfig_ExtensionProvider) map[string]*model.ExternalAuthorizer {
	var out map[string]*model.ExternalAuthorizer
	for i, p := range list {
		at, before := at.Index(i), c.Problems.Count(problem.SeverityError)
		var a *model.ExternalAuthorizer
		if h := p.GetEnvoyExtAuthzHttp(); h != nil {
			a = c.httpAuthorizer(at.Field("envoyExtAuthzHttp"), h)
		} else if g := p.GetEnvoyExtAuthzGrpc(); g != nil {
			a = c.grpcAuthorizer(at.Field("envoyExtAuthzGrpc"), g)
		} else {
			continue
		}
		c.providerName(at.Field("name"), p.GetName())
		if out[p.GetName()] != nil {
			c.Errorf(code.ListedTwice, at.Field("name"), "%q is the name of an earlier provider; choose another", p.GetName())
		}
		if c.Problems.Count(problem.SeverityError) > before {
			continue
		}
		if out == nil {
			out = map[string]*model.ExternalAuthorizer{}
		}
		a.Name = p.GetName()
		out[a.Name] = a
	}
	return out
}

// providerName checks a name that becomes part of metadata that filters compare by prefix.
func (c providerConv) providerName(at problem.Path, name string) {
	if name == "" || len(name) > maxProviderName || !convert.IsLabel(name) || strings.ToLower(name) != name {
		c.Errorf(code.InvalidName, at, "%q is not a name of a provider: use at most %d lower-case letters, digits and '-'", name, maxProviderName)
	}
}

// authorizer is what both kinds have.
type authorizer interface {
	GetService() string
	GetPort() uint32
	GetFailOpen() bool
	GetStatusOnError() string
	GetClearRouteCache() bool
	GetIncludeRequestBodyInCheck() *meshconfig.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationRequestBody
}

func (c providerConv) authorizer(at problem.Path, p authorizer) *model.ExternalAuthorizer {
	ns, host, both := strings.Cut(p.GetService(), "/")
	if !both {
		ns, host = "", ns
	}
	c.CheckHost(at.Field("service"), host, false)
	c.CheckPort(at.Field("port"), p.GetPort())
	out := &model.ExternalAuthorizer{
		Namespace: ns, Host: model.Host(strings.ToLower(host)), Port: p.GetPort(), Timeout: authorizerTimeout,
		FailOpen: p.GetFailOpen(), ClearRouteCache: p.GetClearRouteCache(),
		StatusOnError: c.statusOnError(at.Field("statusOnError"), p.GetStatusOnError()),
	}
	if b := p.GetIncludeRequestBodyInCheck(); b != nil {
		if b.MaxRequestBytes == 0 {
			c.Errorf(code.MissingField, at.Field("includeRequestBodyInCheck").Field("maxRequestBytes"), "is missing; set the maximum number of bytes to send")
		}
		out.Body = &model.AuthorizerBody{MaxBytes: b.MaxRequestBytes, Partial: b.AllowPartialMessage, AsBytes: b.PackAsBytes}
	}
	return out
}

func (c providerConv) statusOnError(at problem.Path, s string) uint32 {
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || !knownStatus(uint32(n)) {
		c.Errorf(code.InvalidNumber, at, "%q is not an HTTP status that Envoy answers with, such as 403 or 503", s)
	}
	return uint32(n)
}

// knownStatus reports whether Envoy answers with a status.
func knownStatus(code uint32) bool {
	switch code {
	case http.StatusEarlyHints, http.StatusTeapot, http.StatusTooEarly, http.StatusUnavailableForLegalReasons:
		return false
	}
	return http.StatusText(int(code)) != ""
}

func (c providerConv) httpAuthorizer(at problem.Path, p *meshconfig.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider) *model.ExternalAuthorizer {
	out := c.authorizer(at, p)
	if t := c.Duration(at.Field("timeout"), p.Timeout); t > 0 {
		out.Timeout = t
	}
	if p.PathPrefix != "" && !strings.HasPrefix(p.PathPrefix, "/") {
		c.Errorf(code.InvalidFormat, at.Field("pathPrefix"), "%q does not begin with \"/\"", p.PathPrefix)
	}
	sent := p.IncludeRequestHeadersInCheck
	if len(sent) == 0 {
		sent = p.IncludeHeadersInCheck //nolint:staticcheck // deprecated, but it still holds
	}
	for _, l := range []struct {
		field string
		names []string
	}{
		{"includeRequestHeadersInCheck", sent}, {"headersToUpstreamOnAllow", p.HeadersToUpstreamOnAllow},
		{"headersToDownstreamOnAllow", p.HeadersToDownstreamOnAllow}, {"headersToDownstreamOnDeny", p.HeadersToDownstreamOnDeny},
	} {
		c.headerPatterns(at.Field(l.field), l.names)
	}
	for _, name := range slices.Sorted(maps.Keys(p.IncludeAdditionalHeadersInCheck)) {
		c.HeaderName(at.Field("includeAdditionalHeadersInCheck").Key(name), name)
	}
	out.HTTP = &model.HTTPAuthorizer{
		PathPrefix: p.PathPrefix, Sent: sent, Added: p.IncludeAdditionalHeadersInCheck, ToUpstream: p.HeadersToUpstreamOnAllow,
		ToClientOnAllow: p.HeadersToDownstreamOnAllow, ToClientOnDeny: p.HeadersToDownstreamOnDeny,
	}
	return out
}

// headerPatterns checks names of headers that may end or begin with "*".
func (c providerConv) headerPatterns(at problem.Path, list []string) {
	for i, h := range list {
		name := strings.TrimSuffix(h, "*")
		if name == h {
			name = strings.TrimPrefix(h, "*")
		}
		if name == "" {
			c.Errorf(code.InvalidName, at.Index(i), "%q is not a header name; write one, such as \"authorization\", or the beginning of one, such as \"x-*\"", h)
			continue
		}
		c.HeaderName(at.Index(i), name)
	}
}

func (c providerConv) grpcAuthorizer(at problem.Path, p *meshconfig.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider) *model.ExternalAuthorizer {
	out := c.authorizer(at, p)
	if t := c.Duration(at.Field("timeout"), p.Timeout); t > 0 {
		out.Timeout = t
	}
	return out
}
