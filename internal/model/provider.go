package model

import (
	"strings"
	"time"
)

// ProviderKind is what a provider of telemetry is.
type ProviderKind string

// The kinds, as MeshConfig's fields are called.
const (
	ProviderPrometheus    ProviderKind = "prometheus"
	ProviderFileLog       ProviderKind = "envoyFileAccessLog"
	ProviderOTelLog       ProviderKind = "envoyOtelAls"
	ProviderHTTPLog       ProviderKind = "envoyHttpAls"
	ProviderTCPLog        ProviderKind = "envoyTcpAls"
	ProviderZipkin        ProviderKind = "zipkin"
	ProviderOpenTelemetry ProviderKind = "opentelemetry"
	ProviderDatadog       ProviderKind = "datadog"
	ProviderSkyWalking    ProviderKind = "skywalking"
)

// IsLog tells whether access logs can go to the provider.
func (k ProviderKind) IsLog() bool {
	return k == ProviderFileLog || k == ProviderOTelLog || k == ProviderHTTPLog || k == ProviderTCPLog
}

// IsTracing tells whether spans can go to the provider.
func (k ProviderKind) IsTracing() bool {
	return k == ProviderZipkin || k == ProviderOpenTelemetry || k == ProviderDatadog || k == ProviderSkyWalking
}

// Provider is where telemetry goes: one of MeshConfig's extensionProviders.
type Provider struct {
	Name string
	Kind ProviderKind

	// Of those that are services.
	Namespace string // of the service; empty: not said
	Host      Host
	Port      uint32

	Log LogFormat // of logs
	// LogName, FilterState and the headers are for gRPC access logs.
	LogName         string
	FilterState     []string
	RequestHeaders  []string
	ResponseHeaders []string
	Trailers        []string

	// Of tracing.
	MaxTagLength uint32        // of the path's tag; 0: Envoy's default
	Path         string        // of the collector, over HTTP; empty for OpenTelemetry: gRPC
	Timeout      time.Duration // 0: Envoy's default
	Headers      []HeaderValue // that the collector gets, with Envoy's command operators
	ShortIDs     bool          // zipkin's 64-bit ids
	W3C          bool          // zipkin tells the trace as W3C, too
	Environment  bool          // OpenTelemetry's resource has what the environment says
	Token        string        // that SkyWalking's collector asks for
}

// LogFormat is how lines of an access log look. Empty: Istio's text.
type LogFormat struct {
	Path string // of the file
	Text string
	// JSON is an object with a format for each field; the text is the body then, where
	// there are both.
	JSON      string
	OmitEmpty bool
}

// MeshTelemetry is what the mesh tells of calls where no Telemetry says otherwise.
type MeshTelemetry struct {
	Providers []Provider
	// Names of the default providers.
	Metrics, Logging, Tracing []string
	// AccessLog is the format of the mesh's AccessLogFile.
	AccessLog LogFormat
	// Collector is where spans go if nobody names a provider; nil: nowhere.
	Collector    *Provider
	Sampling     float64 // percent
	Tags         map[string]TraceTag
	MaxTagLength uint32
	NoIstioTags  bool // spans have none of Istio's tags
	// PrometheusMerge: injected sidecars offer the application's metrics with their own.
	PrometheusMerge bool
}

// DefaultMeshTelemetry is Istio's: metrics for Prometheus, and nothing else.
func DefaultMeshTelemetry() MeshTelemetry {
	return MeshTelemetry{
		Providers: []Provider{
			{Name: "prometheus", Kind: ProviderPrometheus},
			{Name: "envoy", Kind: ProviderFileLog, Log: LogFormat{Path: "/dev/stdout"}},
		},
		Metrics: []string{"prometheus"}, Sampling: 1, PrometheusMerge: true,
	}
}

// Provider finds a provider by its name, whose case does not count; nil: there is none.
func (m *MeshTelemetry) Provider(name string) *Provider {
	for i := range m.Providers {
		if strings.EqualFold(m.Providers[i].Name, name) {
			return &m.Providers[i]
		}
	}
	return nil
}
