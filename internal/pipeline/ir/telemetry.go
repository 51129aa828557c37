package ir

import (
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// Telemetry is what a chain reports about its requests or connections. The chains of a group share one.
type Telemetry struct {
	Server  bool          // it reports calls to the workload; else calls by it
	Metrics []Metric      // in the order of model.Metrics; empty: none
	Every   time.Duration // how often open connections report their bytes
	Logs    []AccessLog
	Tracing *Tracing // nil: none
	// SendsPeerHeader makes the caller's sidecar name the caller in a header. Virtual hosts hide the header if they lead out of the
	// mesh.
	SendsPeerHeader bool
}

// Metric is one of Istio's standard metrics.
type Metric struct {
	Metric model.Metric
	// Tags add or replace labels, by name. Removed are standard labels that are left out.
	Tags    []MetricTag
	Removed []string
}

// MetricTag is a label with a value in Envoy's command operators.
type MetricTag struct{ Name, Format string }

// AccessLog is where calls are logged.
type AccessLog struct {
	Name    string // of the provider
	Kind    model.ProviderKind
	Format  model.LogFormat
	Filter  string     // CEL; empty: all calls
	Host    model.Host // of the service that receives it; empty: a file
	Cluster string     // of Host

	LogName                                   string
	FilterState                               []string
	RequestHeaders, ResponseHeaders, Trailers []string
}

// Tracing is which spans are reported, and where they go.
type Tracing struct {
	Kind          model.ProviderKind
	Cluster       string
	Host          model.Host
	Path          string // over HTTP; empty: gRPC
	Timeout       time.Duration
	Headers       []model.CollectorHeader
	ShortIDs, W3C bool
	Token         string
	MaxTagLength  uint32
	Sampling      float64    // percent
	Tags          []TraceTag // by name
	IstioTags     bool
	RequestID     bool // the id of the request decides whether it is sampled
	NoPropagation bool
	UpstreamSpan  bool // calls have a span beside that of the request which causes them
}

// TraceTag is a tag of spans.
type TraceTag struct {
	Name string
	model.TraceTag
}
