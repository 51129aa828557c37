package ir

import (
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// Telemetry is what a chain tells of its requests or connections. The chains of a scope
// share one.
type Telemetry struct {
	Server  bool          // it tells of what the workload is called by; else of what it calls
	Metrics []Metric      // in the order of model.Metrics; empty: none
	Every   time.Duration // how often the bytes of connections that go on are counted
	Logs    []AccessLog
	Tracing *Tracing // nil: none
	// TellsPeer has the caller's sidecar say in a header who calls. Virtual hosts hide it where they
	// lead out of the mesh.
	TellsPeer bool
}

// Metric is one of Istio's standard metrics.
type Metric struct {
	Metric model.Metric
	// Tags are labels beside, or in place of, the standard ones, by name; Removed are those
	// of the standard ones that are left out.
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
	Filter  string // CEL; empty: all calls
	Cluster string // of the service that gets it; empty: a file

	LogName                                   string
	FilterState                               []string
	RequestHeaders, ResponseHeaders, Trailers []string
}

// Tracing is where spans go, and which.
type Tracing struct {
	Kind          model.ProviderKind
	Cluster       string
	Host          model.Host
	Path          string // over HTTP; empty: gRPC
	Timeout       time.Duration
	Headers       []model.HeaderValue
	ShortIDs, W3C bool
	Environment   bool // the resource has what the environment says
	Token         string
	MaxTagLength  uint32
	Sampling      float64    // percent
	Tags          []TraceTag // by name
	IstioTags     bool
	RequestID     bool // the id of the request decides which calls are sampled
	NoPropagation bool
}

// TraceTag is a tag of spans.
type TraceTag struct {
	Name string
	model.TraceTag
}
