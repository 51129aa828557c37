package telemetry

import (
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	uuidv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/request_id/uuid/v3"
	detectorsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/resource_detectors/v3"
	metadatav3 "github.com/envoyproxy/go-control-plane/envoy/type/metadata/v3"
	tagv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/xds/callstats"
)

// collectorTimeout is the timeout of collectors over HTTP, which Envoy requires.
const collectorTimeout = 5 * time.Second

// SetTracing makes a connection manager report spans.
func SetTracing(t *ir.Telemetry, out *hcmv3.HttpConnectionManager) {
	if t == nil || t.Tracing == nil {
		return
	}
	v := t.Tracing
	name, config := tracer(v)
	out.Tracing = &hcmv3.HttpConnectionManager_Tracing{
		ClientSampling: percentOf(100), RandomSampling: percentOf(v.Sampling), OverallSampling: percentOf(100),
		MaxPathTagLength: envoyproto.UInt32(v.MaxTagLength), NoContextPropagation: v.NoPropagation,
		Provider: &tracev3.Tracing_Http{
			Name: name, ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: envoyproto.MustPack(config)},
		},
	}
	// Without a span of its upstream request, SkyWalking does not propagate the trace.
	if v.UpstreamSpan || v.Kind == model.ProviderSkyWalking {
		out.Tracing.SpawnUpstreamSpan = envoyproto.True
	}
	if v.IstioTags {
		out.Tracing.CustomTags = slices.Clone(istioTags)
	}
	for i := range v.Tags {
		out.Tracing.CustomTags = append(out.Tracing.CustomTags, customTag(&v.Tags[i]))
	}
	out.RequestIdExtension = &hcmv3.RequestIDExtension{TypedConfig: envoyproto.MustPack(&uuidv3.UuidRequestIdConfig{
		UseRequestIdForTraceSampling: wrapperspb.Bool(v.RequestID),
	})}
}

func percentOf(p float64) *typev3.Percent { return &typev3.Percent{Value: p} }

func tracer(v *ir.Tracing) (string, proto.Message) {
	switch v.Kind {
	case model.ProviderZipkin:
		return "envoy.tracers.zipkin", zipkin(v)
	case model.ProviderDatadog:
		return "envoy.tracers.datadog", &tracev3.DatadogConfig{
			CollectorCluster: v.Cluster, CollectorHostname: string(v.Host), ServiceName: datadogService,
		}
	case model.ProviderSkyWalking:
		return "envoy.tracers.skywalking", skyWalking(v)
	}
	return "envoy.tracers.opentelemetry", openTelemetry(v)
}

// datadogService is the service of spans if the environment of the sidecar has no DD_SERVICE.
const datadogService = "envoy"

// skyWalking configures SkyWalking. Envoy uses service and instance of its node.
func skyWalking(v *ir.Tracing) proto.Message {
	out := &tracev3.SkyWalkingConfig{GrpcService: grpcService(v.Cluster, v.Host)}
	if v.Token != "" {
		out.ClientConfig = &tracev3.ClientConfig{BackendTokenSpecifier: &tracev3.ClientConfig_BackendToken{BackendToken: v.Token}}
	}
	return out
}

func zipkin(v *ir.Tracing) proto.Message {
	out := &tracev3.ZipkinConfig{
		CollectorEndpointVersion: tracev3.ZipkinConfig_HTTP_JSON, TraceId_128Bit: !v.ShortIDs, SharedSpanContext: envoyproto.False,
		CollectorService: collectorOverHTTP(v),
	}
	if v.W3C {
		out.TraceContextOption = tracev3.ZipkinConfig_USE_B3_WITH_W3C_PROPAGATION
	}
	return out
}

// environmentDetector reads the workload of spans from the environment of the sidecar (OTEL_RESOURCE_ATTRIBUTES),
// because the workloads of a proxy group share their configuration.
var environmentDetector = []*corev3.TypedExtensionConfig{{
	Name:        "envoy.tracers.opentelemetry.resource_detectors.environment",
	TypedConfig: envoyproto.MustPack(&detectorsv3.EnvironmentResourceDetectorConfig{}),
}}

func openTelemetry(v *ir.Tracing) proto.Message {
	out := &tracev3.OpenTelemetryConfig{ResourceDetectors: environmentDetector}
	if v.Path != "" {
		out.HttpService = collectorOverHTTP(v)
		return out
	}
	out.GrpcService = grpcService(v.Cluster, v.Host)
	out.GrpcService.Timeout = envoyproto.Duration(v.Timeout)
	for i := range v.Headers {
		if value, ok := v.Headers[i].Sent(); ok {
			out.GrpcService.InitialMetadata = append(out.GrpcService.InitialMetadata, &corev3.HeaderValue{Key: v.Headers[i].Name, Value: value})
		}
	}
	return out
}

func collectorOverHTTP(v *ir.Tracing) *corev3.HttpService {
	timeout := v.Timeout
	if timeout == 0 {
		timeout = collectorTimeout
	}
	out := &corev3.HttpService{HttpUri: &corev3.HttpUri{
		Uri:              "http://" + string(v.Host) + v.Path,
		HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: v.Cluster},
		Timeout:          durationpb.New(timeout),
	}}
	for i := range v.Headers { // unlike those of gRPC, these are formats
		if value, ok := v.Headers[i].Sent(); ok {
			out.RequestHeadersToAdd = append(out.RequestHeadersToAdd, &corev3.HeaderValueOption{
				Header:       &corev3.HeaderValue{Key: v.Headers[i].Name, Value: strings.ReplaceAll(value, "%", "%%")},
				AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
			})
		}
	}
	return out
}

// istioTags are Istio's tags of all spans. The agent sets the values about the workload in Envoy's environment.
var istioTags = []*tagv3.CustomTag{
	environmentTag("istio.canonical_revision", callstats.EnvCanonicalRevision, ""),
	environmentTag("istio.canonical_service", callstats.EnvCanonicalService, ""),
	environmentTag("istio.cluster_id", callstats.EnvClusterID, ""),
	environmentTag("istio.mesh_id", callstats.EnvMeshID, ""),
	environmentTag("istio.namespace", callstats.EnvNamespace, ""),
	dryRunTag("istio.authorization.dry_run.allow_policy.name", "istio_dry_run_allow_shadow_effective_policy_id"),
	dryRunTag("istio.authorization.dry_run.allow_policy.result", "istio_dry_run_allow_shadow_engine_result"),
	dryRunTag("istio.authorization.dry_run.deny_policy.name", "istio_dry_run_deny_shadow_effective_policy_id"),
	dryRunTag("istio.authorization.dry_run.deny_policy.result", "istio_dry_run_deny_shadow_engine_result"),
}

// dryRunTag is what policies without effect would have done. Spans of other requests do not have the tag.
func dryRunTag(tag, key string) *tagv3.CustomTag {
	return &tagv3.CustomTag{Tag: tag, Type: &tagv3.CustomTag_Metadata_{Metadata: &tagv3.CustomTag_Metadata{
		Kind: &metadatav3.MetadataKind{Kind: &metadatav3.MetadataKind_Request_{Request: &metadatav3.MetadataKind_Request{}}},
		MetadataKey: &metadatav3.MetadataKey{
			Key:  "envoy.filters.http.rbac",
			Path: []*metadatav3.MetadataKey_PathSegment{{Segment: &metadatav3.MetadataKey_PathSegment_Key{Key: key}}},
		},
	}}}
}

func environmentTag(tag, variable, fallback string) *tagv3.CustomTag {
	return &tagv3.CustomTag{Tag: tag, Type: &tagv3.CustomTag_Environment_{
		Environment: &tagv3.CustomTag_Environment{Name: variable, DefaultValue: fallback},
	}}
}

func customTag(t *ir.TraceTag) *tagv3.CustomTag {
	switch {
	case t.Environment != "":
		return environmentTag(t.Name, t.Environment, t.Default)
	case t.Header != "":
		return &tagv3.CustomTag{Tag: t.Name, Type: &tagv3.CustomTag_RequestHeader{
			RequestHeader: &tagv3.CustomTag_Header{Name: t.Header, DefaultValue: t.Default},
		}}
	case t.Format != "":
		return &tagv3.CustomTag{Tag: t.Name, Type: &tagv3.CustomTag_Value{Value: t.Format}}
	}
	return &tagv3.CustomTag{Tag: t.Name, Type: &tagv3.CustomTag_Literal_{Literal: &tagv3.CustomTag_Literal{Value: t.Literal}}}
}
