package istio

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	meshconfig "istio.io/api/mesh/v1alpha1"

	"github.com/moonsail/moonsail/internal/model"
)

// collector is a provider that is a service.
type collector interface {
	GetService() string
	GetPort() uint32
}

// provider converts one of extensionProviders; nil for those that are not about telemetry,
// and for those that have no effect here, of which it warns.
func (c *conv) provider(at path, p *meshconfig.MeshConfig_ExtensionProvider) *model.Provider {
	out := &model.Provider{Name: p.GetName()}
	switch v := p.GetProvider().(type) {
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyExtAuthzHttp, *meshconfig.MeshConfig_ExtensionProvider_EnvoyExtAuthzGrpc:
		return nil
	case *meshconfig.MeshConfig_ExtensionProvider_Prometheus:
		out.Kind = model.ProviderPrometheus
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLog:
		c.fileLog(at.f("envoyFileAccessLog"), v.EnvoyFileAccessLog, out)
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyOtelAls:
		c.otelLog(at.f("envoyOtelAls"), v.EnvoyOtelAls, out)
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyHttpAls:
		c.httpLog(at.f("envoyHttpAls"), v.EnvoyHttpAls, out)
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyTcpAls:
		out.Kind, out.LogName, out.FilterState = model.ProviderTCPLog, v.EnvoyTcpAls.LogName, v.EnvoyTcpAls.FilterStateObjectsToLog
		c.collector(at.f("envoyTcpAls"), v.EnvoyTcpAls, out)
	case *meshconfig.MeshConfig_ExtensionProvider_Zipkin:
		c.zipkin(at.f("zipkin"), v.Zipkin, out)
	case *meshconfig.MeshConfig_ExtensionProvider_Opentelemetry:
		c.openTelemetry(at.f("opentelemetry"), v.Opentelemetry, out)
	case *meshconfig.MeshConfig_ExtensionProvider_Datadog:
		out.Kind, out.MaxTagLength = model.ProviderDatadog, v.Datadog.MaxTagLength
		c.collector(at.f("datadog"), v.Datadog, out)
	case *meshconfig.MeshConfig_ExtensionProvider_Skywalking:
		out.Kind, out.Token = model.ProviderSkyWalking, v.Skywalking.AccessToken
		c.collector(at.f("skywalking"), v.Skywalking, out)
	default:
		c.warnf(at, "%q is of a kind that has no effect in Moonsail; use prometheus, envoyFileAccessLog, envoyOtelAls, "+
			"envoyHttpAls, envoyTcpAls, zipkin, opentelemetry, datadog or skywalking", p.GetName())
		return nil
	}
	if out.Name == "" {
		c.errorf(at.f("name"), "is missing; Telemetry and defaultProviders refer to providers by name")
	}
	return out
}

// collector takes over which service it is: "host" or "namespace/host".
func (c *conv) collector(at path, from collector, out *model.Provider) {
	ns, host, both := strings.Cut(from.GetService(), "/")
	if !both {
		ns, host = "", ns
	}
	c.checkHost(at.f("service"), host, false)
	c.checkPort(at.f("port"), from.GetPort())
	out.Namespace, out.Host, out.Port = ns, model.Host(strings.ToLower(host)), from.GetPort()
}

func (c *conv) fileLog(at path, v *meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider, out *model.Provider) {
	out.Kind, out.Log = model.ProviderFileLog, model.LogFormat{Path: cmpOr(v.Path, "/dev/stdout"), OmitEmpty: v.OmitEmptyValues}
	at = at.f("logFormat")
	switch f := v.GetLogFormat().GetLogFormat().(type) {
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Text:
		out.Log.Text = c.logText(at.f("text"), f.Text)
	case *meshconfig.MeshConfig_ExtensionProvider_EnvoyFileAccessLogProvider_LogFormat_Labels:
		if out.Log.JSON = c.logLabels(at.f("labels"), f.Labels); len(f.Labels.GetFields()) == 0 {
			out.Log.JSON = defaultJSONLog
		}
	}
}

func (c *conv) otelLog(at path, v *meshconfig.MeshConfig_ExtensionProvider_EnvoyOpenTelemetryLogProvider, out *model.Provider) {
	out.Kind, out.LogName = model.ProviderOTelLog, v.LogName
	c.collector(at, v, out)
	out.Log.Text = c.logText(at.f("logFormat").f("text"), v.GetLogFormat().GetText())
	out.Log.JSON = c.logLabels(at.f("logFormat").f("labels"), v.GetLogFormat().GetLabels())
}

func (c *conv) httpLog(at path, v *meshconfig.MeshConfig_ExtensionProvider_EnvoyHttpGrpcV3LogProvider, out *model.Provider) {
	out.Kind, out.LogName, out.FilterState = model.ProviderHTTPLog, v.LogName, v.FilterStateObjectsToLog
	out.RequestHeaders, out.ResponseHeaders = v.AdditionalRequestHeadersToLog, v.AdditionalResponseHeadersToLog
	out.Trailers = v.AdditionalResponseTrailersToLog
	c.collector(at, v, out)
}

func (c *conv) zipkin(at path, v *meshconfig.MeshConfig_ExtensionProvider_ZipkinTracingProvider, out *model.Provider) {
	out.Kind, out.MaxTagLength, out.ShortIDs = model.ProviderZipkin, v.MaxTagLength, v.Enable_64BitTraceId
	out.W3C = v.TraceContextOption == meshconfig.MeshConfig_ExtensionProvider_ZipkinTracingProvider_USE_B3_WITH_W3C_PROPAGATION
	out.Path = c.collectorPath(at.f("path"), cmpOr(v.Path, "/api/v2/spans"))
	out.Timeout = c.duration(at.f("timeout"), v.Timeout)
	out.Headers = c.collectorHeaders(at.f("headers"), v.Headers)
	c.collector(at, v, out)
}

func (c *conv) openTelemetry(at path, v *meshconfig.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider, out *model.Provider) {
	out.Kind, out.MaxTagLength = model.ProviderOpenTelemetry, v.MaxTagLength
	c.collector(at, v, out)
	switch {
	case v.Http != nil && v.Grpc != nil:
		c.errorf(at, "has both http and grpc; keep one")
	case v.Http != nil:
		out.Path = c.collectorPath(at.f("http").f("path"), cmpOr(v.Http.Path, "/v1/traces"))
		out.Timeout = c.duration(at.f("http").f("timeout"), v.Http.Timeout)
		out.Headers = c.collectorHeaders(at.f("http").f("headers"), v.Http.Headers)
	case v.Grpc != nil:
		out.Timeout = c.duration(at.f("grpc").f("timeout"), v.Grpc.Timeout)
		out.Headers = c.collectorHeaders(at.f("grpc").f("initialMetadata"), v.Grpc.InitialMetadata)
	}
	out.Environment = v.GetResourceDetectors().GetEnvironment() != nil ||
		v.ServiceAttributeEnrichment == meshconfig.MeshConfig_ExtensionProvider_OTEL_SEMANTIC_CONVENTIONS
	if v.Sampling != nil {
		c.warnf(at.f("dynatraceSampler"), "has no effect in Moonsail; sampling goes by randomSamplingPercentage")
	}
	if v.GetResourceDetectors().GetDynatrace() != nil {
		c.warnf(at.f("resourceDetectors").f("dynatrace"), "has no effect in Moonsail; it is left out")
	}
}

func (c *conv) collectorPath(at path, p string) string {
	if !strings.HasPrefix(p, "/") {
		c.errorf(at, "%q is not a path; begin it with \"/\"", p)
	}
	return p
}

func (c *conv) collectorHeaders(at path, list []*meshconfig.MeshConfig_ExtensionProvider_HttpHeader) []model.HeaderValue {
	var out []model.HeaderValue
	for i, h := range list {
		at := at.i(i)
		c.headerName(at.f("name"), h.GetName())
		value := strings.ReplaceAll(h.GetValue(), "%", "%%")
		if env := h.GetEnvName(); env != "" {
			if strings.ContainsAny(env, "%()") {
				c.errorf(at.f("envName"), "%q is not a name of an environment variable", env)
			}
			value = "%ENVIRONMENT(" + env + ")%"
		}
		out = append(out, model.HeaderValue{Name: h.GetName(), Value: value})
	}
	return out
}

// defaultTracing takes what defaultConfig says of tracing, which is Istio's way before it had
// providers: enableTracing sends spans to zipkin, and the rest are defaults for all providers.
func (c *conv) defaultTracing(at path, said *meshconfig.MeshConfig, out *model.MeshTelemetry) {
	t := said.GetDefaultConfig().GetTracing()
	out.MaxTagLength = t.GetMaxPathTagLength()
	if s := t.GetSampling(); s != 0 {
		if s < 0 || s > 100 {
			c.errorf(at.f("sampling"), "%v is not a percentage; use 0 to 100", s)
		}
		out.Sampling = s
	}
	out.NoIstioTags = t.GetEnableIstioTags() != nil && !t.EnableIstioTags.Value
	out.Tags = c.proxyTags(at.f("customTags"), t.GetCustomTags())
	if !said.EnableTracing {
		return
	}
	zipkin := t.GetZipkin()
	if zipkin == nil {
		c.warnf(at, "has no zipkin, to which enableTracing would send spans; name a provider in defaultProviders.tracing instead")
		return
	}
	host, port, err := net.SplitHostPort(zipkin.Address)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || n == 0 {
		c.errorf(at.f("zipkin").f("address"), "%q is not of the form host:port", zipkin.Address)
		return
	}
	if parts := strings.Split(host, "."); len(parts) == 2 { // service.namespace
		host += ".svc." + c.domain
	}
	out.Collector = &model.Provider{
		Name: "zipkin", Kind: model.ProviderZipkin, Host: model.Host(host), Port: uint32(n), Path: "/api/v2/spans",
	}
}

func (c *conv) proxyTags(at path, tags map[string]*meshconfig.Tracing_CustomTag) map[string]model.TraceTag {
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
			c.errorf(at.k(name), "has no value; give one of literal, environment and header")
		}
		out[name] = tag
	}
	return out
}
