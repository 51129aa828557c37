package model

import "time"

// Telemetry configures what sidecars report about calls: metrics, access logs and traces. Those of the root namespace
// are defaults for all.
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

// Sides are the ends of a call.
type Sides uint8

// The sides: calls by a workload, and calls to it.
const (
	SideClient Sides = 1 << iota
	SideServer
	BothSides = SideClient | SideServer
)

// Metric is one of Istio's standard metrics, with its name in Telemetry.
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

// MetricsRule changes metrics. Later rules override earlier ones.
type MetricsRule struct {
	Providers []string // empty: those of the rule before, else the mesh's defaults
	Overrides []MetricOverride
	Every     time.Duration // interval of counting the bytes of an open connection; 0: unset
}

// DefaultReporting is Istio's default interval of counting the bytes of an open connection.
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

// LoggingRule enables and disables access logs.
type LoggingRule struct {
	Providers []string // empty: as for metrics
	Sides     Sides
	Disabled  *bool
	Filter    string // a CEL expression that must be true; empty: all calls
}

// TracingRule changes tracing. nil fields change nothing.
type TracingRule struct {
	Provider  string // empty: unchanged
	Sides     Sides
	Disabled  *bool    // spans are not reported; the trace is still propagated
	Sampling  *float64 // percent
	Tags      map[string]TraceTag
	RequestID *bool // the request id determines which are sampled
	IstioTags *bool
	// NoPropagation: calls do not propagate their trace.
	NoPropagation *bool
}

// TraceTag is the source of a tag's value: exactly one of the four.
type TraceTag struct {
	Literal     string
	Header      string // of the request
	Environment string // a variable of the sidecar's
	Format      string // with Envoy's command operators
	Default     string // without the header or variable
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
