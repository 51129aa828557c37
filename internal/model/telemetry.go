package model

import "time"

// Telemetry says what sidecars tell of calls: metrics, access logs and traces. Those of the
// root namespace are defaults for all.
type Telemetry struct {
	Meta
	Selector map[string]string // empty: all workloads of the namespace
	Targets
	Metrics []MetricsRule
	Logging []LoggingRule
	Tracing []TracingRule
}

// SelectorLabels implements Selecting.
func (t *Telemetry) SelectorLabels() map[string]string { return t.Selector }

// ShapesOutbound implements Selecting.
func (t *Telemetry) ShapesOutbound() bool { return true }

// Sides are the ends of a call that something is about.
type Sides uint8

// The sides: what a workload calls, and what it is called by.
const (
	SideClient Sides = 1 << iota
	SideServer
	BothSides = SideClient | SideServer
)

// Metric is one of Istio's standard metrics, as Telemetry calls it.
type Metric string

// The metrics.
const (
	MetricRequests         Metric = "REQUEST_COUNT"
	MetricDuration         Metric = "REQUEST_DURATION"
	MetricRequestSize      Metric = "REQUEST_SIZE"
	MetricResponseSize     Metric = "RESPONSE_SIZE"
	MetricTCPOpened        Metric = "TCP_OPENED_CONNECTIONS"
	MetricTCPClosed        Metric = "TCP_CLOSED_CONNECTIONS"
	MetricTCPSent          Metric = "TCP_SENT_BYTES"
	MetricTCPReceived      Metric = "TCP_RECEIVED_BYTES"
	MetricRequestMessages  Metric = "GRPC_REQUEST_MESSAGES"
	MetricResponseMessages Metric = "GRPC_RESPONSE_MESSAGES"
)

// Metrics lists all metrics in a fixed order.
var Metrics = []Metric{
	MetricRequests, MetricDuration, MetricRequestSize, MetricResponseSize,
	MetricTCPOpened, MetricTCPClosed, MetricTCPSent, MetricTCPReceived,
	MetricRequestMessages, MetricResponseMessages,
}

// MetricsRule changes metrics. Rules are taken one after the other, later ones over earlier.
type MetricsRule struct {
	Providers []string // empty: those of the rule before, else the mesh's defaults
	Overrides []MetricOverride
	Every     time.Duration // how often the bytes of a connection that goes on are counted; 0: nothing is said
}

// DefaultReporting is Istio's: how often the bytes of a connection that goes on are counted.
const DefaultReporting = 5 * time.Second

// MetricOverride changes one metric, or all.
type MetricOverride struct {
	Metric   Metric // empty: all
	Sides    Sides
	Disabled *bool
	Tags     []TagOverride // sorted by name
}

// TagOverride changes one label.
type TagOverride struct {
	Name   string
	Remove bool
	Format string // with Envoy's command operators
}

// LoggingRule turns access logs on and off.
type LoggingRule struct {
	Providers []string // empty: as for metrics
	Sides     Sides
	Disabled  *bool
	Filter    string // a CEL expression that must hold; empty: all is logged
}

// TracingRule changes tracing. What is nil stays as it was.
type TracingRule struct {
	Provider  string // empty: as it was
	Sides     Sides
	Disabled  *bool    // spans are not reported; calls go on telling their trace
	Sampling  *float64 // percent
	Tags      map[string]TraceTag
	RequestID *bool // the id of the request decides which are sampled
	IstioTags *bool
	// NoPropagation: calls do not tell which trace they belong to.
	NoPropagation *bool
}

// TraceTag is where the value of a span's tag comes from: exactly one of the four.
type TraceTag struct {
	Literal     string
	Header      string // of the request
	Environment string // a variable of the sidecar's
	Format      string // with Envoy's command operators
	Default     string // where header or variable is not there
}

// EffectiveTelemetries are those that count for workloads of a namespace, each over those before: the root
// namespace's, the namespace's, and those that select them. They are given in the order of policies: the root
// namespace's first, the oldest first in each; of those that are for a whole namespace the first counts.
func EffectiveTelemetries(namespace string, list []*Telemetry) []*Telemetry {
	var wide, selecting []*Telemetry
	seen := map[string]bool{}
	for _, t := range list {
		switch {
		case t.Namespace == namespace && (len(t.Selector) > 0 || t.Targeted):
			selecting = append(selecting, t)
		case len(t.Selector) == 0 && !t.Targeted && !seen[t.Namespace]: // the oldest counts
			seen[t.Namespace] = true
			wide = append(wide, t)
		}
	}
	return append(wide, selecting...)
}
