// Package telemetry translates what a listener reports: access logs, Istio's standard metrics and traces.
//
// Metrics are made by Envoy's stats access logger. To keep the cost for a request low, the labels that vary are
// parts of one tag, CallTag. The agent splits it when the sidecar is scraped, and adds the labels that do not
// vary (internal/sidecar/agent/istiometrics).
//
// Start reading at HTTPLogs and TCPLogs.
package telemetry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	celfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	otellogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	withoutqueryv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/req_without_query/v3"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

// HTTPLogs returns the loggers of a chain's requests: access logs and statistics.
func HTTPLogs(v *ir.HTTPChain) ([]*accesslogv3.AccessLog, error) {
	logs, err := accessLogs(v.Telemetry, true)
	return append(logs, httpStatistics(v.Telemetry, peerOf(v))...), err
}

// TCPLogs returns the loggers of a chain's connections: access logs and statistics.
func TCPLogs(t *ir.Telemetry) ([]*accesslogv3.AccessLog, error) {
	logs, err := accessLogs(t, false)
	return append(logs, tcpStatistics(t)...), err
}

// textFormat is Istio's default format, which tools parse.
const textFormat = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" ` +
	`%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% ` +
	`"%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% ` +
	`%DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" ` +
	`"%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" ` +
	`%UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% ` +
	"%DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n"

// Envoy's names of access loggers.
const (
	fileLogger = "envoy.access_loggers.file"
	httpLogger = "envoy.access_loggers.http_grpc"
	tcpLogger  = "envoy.access_loggers.tcp_grpc"
	otelLogger = "envoy.access_loggers.open_telemetry"
)

// accessLogs are the access logs of requests (http), or of connections.
func accessLogs(t *ir.Telemetry, http bool) ([]*accesslogv3.AccessLog, error) {
	if t == nil {
		return nil, nil
	}
	var out []*accesslogv3.AccessLog
	for i := range t.Logs {
		l := &t.Logs[i]
		name, config, err := logger(l, http)
		if err != nil {
			return nil, fmt.Errorf("access log %s: %w", l.Name, err)
		}
		if config == nil {
			continue
		}
		if !http { // with statistics Envoy would also log the beginning of connections
			out = append(out, packedLog(name, config, allOf(logFilter(l.Filter), atEnd)))
			continue
		}
		out = append(out, packedLog(name, config, logFilter(l.Filter)))
	}
	return out, nil
}

// packedLog packs the configuration of a logger. Its text was checked when it was decoded.
func packedLog(name string, config proto.Message, filter *accesslogv3.AccessLogFilter) *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{
		Name: name, Filter: filter,
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: envoyproto.MustPack(config)},
	}
}

// logFilter returns nil if everything is logged.
func logFilter(expression string) *accesslogv3.AccessLogFilter {
	if expression == "" {
		return nil
	}
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
		ExtensionFilter: &accesslogv3.ExtensionFilter{
			Name: "envoy.access_loggers.extension_filters.cel",
			ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{
				TypedConfig: envoyproto.MustPack(&celfilterv3.ExpressionFilter{Expression: expression}),
			},
		},
	}}
}

// logger returns nil if the log is not for this kind of chain.
func logger(l *ir.AccessLog, http bool) (string, proto.Message, error) {
	switch l.Kind {
	case model.ProviderFileLog:
		config, err := fileLog(&l.Format)
		return fileLogger, config, err
	case model.ProviderOTelLog:
		config, err := otelLog(l)
		return otelLogger, config, err
	case model.ProviderHTTPLog:
		if http {
			return httpLogger, httpLog(l), nil
		}
	case model.ProviderTCPLog:
		if !http {
			return tcpLogger, &grpclogv3.TcpGrpcAccessLogConfig{CommonConfig: commonLog(l)}, nil
		}
	}
	return "", nil, nil
}

func fileLog(f *model.LogFormat) (proto.Message, error) {
	format := &corev3.SubstitutionFormatString{OmitEmptyValues: f.OmitEmpty}
	text := textFormat
	if f.Text != "" {
		text = f.Text
	}
	if f.JSON != "" {
		text = f.JSON
		fields := &structpb.Struct{}
		if err := fields.UnmarshalJSON([]byte(f.JSON)); err != nil {
			return nil, fmt.Errorf("format: %w", err)
		}
		format.Format = &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: fields}
	} else {
		format.Format = &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: envoyproto.InlineString(text)}
	}
	format.Formatters = formatters(text)
	return &filelogv3.FileAccessLog{
		Path:            f.Path,
		AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: format},
	}, nil
}

// formatters are the extensions that a format uses.
func formatters(text string) []*corev3.TypedExtensionConfig {
	if !strings.Contains(text, "%REQ_WITHOUT_QUERY(") {
		return nil
	}
	return []*corev3.TypedExtensionConfig{{
		Name: "envoy.formatter.req_without_query", TypedConfig: envoyproto.MustPack(&withoutqueryv3.ReqWithoutQuery{}),
	}}
}

func httpLog(l *ir.AccessLog) proto.Message {
	return &grpclogv3.HttpGrpcAccessLogConfig{
		CommonConfig:                    commonLog(l),
		AdditionalRequestHeadersToLog:   l.RequestHeaders,
		AdditionalResponseHeadersToLog:  l.ResponseHeaders,
		AdditionalResponseTrailersToLog: l.Trailers,
	}
}

// logNames are Istio's defaults.
var logNames = map[model.ProviderKind]string{
	model.ProviderOTelLog: "otel_envoy_accesslog", model.ProviderHTTPLog: "http_envoy_accesslog", model.ProviderTCPLog: "tcp_envoy_accesslog",
}

func commonLog(l *ir.AccessLog) *grpclogv3.CommonGrpcAccessLogConfig {
	return &grpclogv3.CommonGrpcAccessLogConfig{
		LogName: cmp.Or(l.LogName, logNames[l.Kind]), GrpcService: grpcService(l.Cluster, l.Host), TransportApiVersion: corev3.ApiVersion_V3,
		FilterStateObjectsToLog: l.FilterState,
	}
}

// grpcService is a service that is called with its host as the authority. Envoy's default is the name of the cluster, which
// is not a valid authority: servers, such as the sidecar of the service, refuse it.
func grpcService(cluster string, host model.Host) *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: cluster, Authority: string(host)},
	}}
}

// otelLog has the text as body and the labels as attributes.
func otelLog(l *ir.AccessLog) (proto.Message, error) {
	text := cmp.Or(l.Format.Text, textFormat)
	out := &otellogv3.OpenTelemetryAccessLogConfig{
		LogName: commonLog(l).LogName, GrpcService: grpcService(l.Cluster, l.Host), DisableBuiltinLabels: true,
		Formatters: formatters(text + l.Format.JSON), Body: otelText(text),
	}
	if l.Format.JSON == "" {
		return out, nil
	}
	var labels map[string]any
	if err := json.Unmarshal([]byte(l.Format.JSON), &labels); err != nil {
		return nil, fmt.Errorf("labels: %w", err)
	}
	out.Attributes = otelValues(labels)
	return out, nil
}

func otelText(text string) *commonv1.AnyValue {
	return &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: text}}
}

func otelValues(labels map[string]any) *commonv1.KeyValueList {
	out := &commonv1.KeyValueList{}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		out.Values = append(out.Values, &commonv1.KeyValue{Key: name, Value: otelValue(labels[name])})
	}
	return out
}

func otelValue(v any) *commonv1.AnyValue {
	switch v := v.(type) {
	case map[string]any:
		return &commonv1.AnyValue{Value: &commonv1.AnyValue_KvlistValue{KvlistValue: otelValues(v)}}
	case []any:
		list := &commonv1.ArrayValue{}
		for _, e := range v {
			list.Values = append(list.Values, otelValue(e))
		}
		return &commonv1.AnyValue{Value: &commonv1.AnyValue_ArrayValue{ArrayValue: list}}
	case string:
		return otelText(v)
	}
	return otelText(fmt.Sprint(v))
}
