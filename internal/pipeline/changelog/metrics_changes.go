package changelog

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// changeMetrics are the metrics of changes.
type changeMetrics struct {
	debounce    prometheus.Histogram     // pilot_debounce_time
	derive      prometheus.Histogram     // pilot_pushcontext_init_seconds
	convergence prometheus.Histogram     // pilot_proxy_convergence_time
	triggers    *prometheus.CounterVec   // pilot_push_triggers
	inbound     *prometheus.CounterVec   // pilot_inbound_updates
	waited      *prometheus.HistogramVec // pilot_worker_queue_latency
	worked      *prometheus.HistogramVec // pilot_worker_queue_duration
	propagation *prometheus.HistogramVec // moonsail_propagation_seconds

	outcomes     *prometheus.CounterVec // moonsail_change_outcomes_total
	superseded   prometheus.Counter     // moonsail_superseded_total
	forgotten    prometheus.Counter     // moonsail_changes_forgotten_total
	linesDropped prometheus.Counter     // moonsail_change_log_lines_dropped_total
	inUse        prometheus.Histogram   // moonsail_in_use_seconds
	samples      *prometheus.CounterVec // moonsail_in_use_samples_total
	untraced     prometheus.Counter     // moonsail_traces_dropped_total
	spans        *prometheus.CounterVec // moonsail_trace_spans_total
}

func newChangeMetrics(r registry) changeMetrics {
	return changeMetrics{
		debounce: r.histogram("pilot_debounce_time",
			"Delay in seconds from the first event of a batch until it is published to streams. Moonsail has no debounce timer.", fine),
		derive: r.histogram("pilot_pushcontext_init_seconds", "Total time in seconds to derive what a batch changes.", fine),
		convergence: r.histogram("pilot_proxy_convergence_time",
			"Delay in seconds between config change and a proxy receiving all required configuration: from the first event to that proxy's ACK.", fine),
		triggers: r.counterVec("pilot_push_triggers", "Total number of times a push was triggered, labeled by reason for the push.", "type"),
		inbound:  r.counterVec("pilot_inbound_updates", "Total number of updates received by pilot, after events of one object have coalesced.", "type"),
		waited: r.histogramVec("pilot_worker_queue_latency",
			"Latency in seconds before the oldest event of a kind in a batch is in the store.", fine, "queueID"),
		worked: r.histogramVec("pilot_worker_queue_duration",
			"Time in seconds to process a batch, from the store to tables that are ready to be sent, once for each kind of object in it.", fine, "queueID"),
		propagation: r.nativeVec("moonsail_propagation_seconds",
			"Time of a change in each stage from its first event to the last proxy's answer (stage=total: the sum), once for each kind of object in the change.",
			fine, "kind", "stage"),
		outcomes: r.counterVec("moonsail_change_outcomes_total",
			"Outcomes of changes for proxies bound to what changed, counted when a change is distributed.", "outcome"),
		superseded: r.counter("moonsail_superseded_total",
			"Revisions that a proxy accepted together with a newer one, in one response."),
		forgotten: r.counter("moonsail_changes_forgotten_total",
			"Changes that left the change log before every proxy concerned had answered."),
		linesDropped: r.counter("moonsail_change_log_lines_dropped_total", "Log lines of changes that were dropped because the log is too slow."),
		inUse: r.histogram("moonsail_in_use_seconds",
			"Upper bound of the time from a proxy's ACK of clusters or listeners until its Envoy used them (warmed, active), for a sample of proxies and changes: see --sample-in-use.", fine),
		samples: r.counterVec("moonsail_in_use_samples_total",
			"Proxies that were asked whether they use a change. result=in_use; timeout: not within 30 s; unknown: the agent did not answer.", "result"),
		untraced: r.counter("moonsail_traces_dropped_total", "Changes without a trace, because the trace collector is too slow."),
		spans:    r.counterVec("moonsail_trace_spans_total", "Spans for the trace collector. result=exported: it accepted them; lost: it did not.", "result"),
	}
}

// InUse records the result of asking a proxy whether it uses what it has ACKed: in_use (d after the ACK),
// timeout or unknown.
func (m *changeMetrics) InUse(d time.Duration, result string) {
	m.samples.WithLabelValues(result).Inc()
	if result == "in_use" {
		m.inUse.Observe(seconds(d))
	}
}

// TraceDropped counts a change that did not become a trace.
func (m *changeMetrics) TraceDropped() { m.untraced.Inc() }

// Spans counts spans that the trace collector accepted, or that were lost.
func (m *changeMetrics) Spans(n int, exported bool) {
	result := "lost"
	if exported {
		result = "exported"
	}
	m.spans.WithLabelValues(result).Add(float64(n))
}

// changed counts the objects of a batch, and the reasons to push it.
func (m *changeMetrics) changed(objects []ChangedObject) {
	reasons := map[string]bool{}
	for _, o := range objects {
		reasons[trigger(o.Kind)] = true
		m.inbound.WithLabelValues(updateType(o)).Inc()
	}
	for r := range reasons {
		m.triggers.WithLabelValues(r).Inc()
	}
}

// trigger is Istio's name of the reason for a push.
func trigger(k model.Kind) string {
	switch k {
	case model.KindEndpointSlice, model.KindPod, model.KindWorkloadEntry:
		return "endpoint"
	case model.KindService, model.KindServiceEntry:
		return "service"
	case model.KindNamespace:
		return "namespace"
	}
	return "config"
}

// updateType is Istio's name of a type of update.
func updateType(o ChangedObject) string {
	switch trigger(o.Kind) {
	case "endpoint":
		return "eds"
	case "service":
		if o.Operation == Deleted {
			return "svcdelete"
		}
		return "svc"
	}
	return "config"
}

// stored records how long the oldest event of each kind waited for the store.
func (m *changeMetrics) stored(kinds []kindSeen, at time.Time) {
	for _, k := range kinds {
		m.waited.WithLabelValues(string(k.kind)).Observe(seconds(at.Sub(k.observed)))
	}
}

// processed records how long a batch took, from the store to its tables.
func (m *changeMetrics) processed(kinds []kindSeen, d time.Duration) {
	for _, k := range kinds {
		m.worked.WithLabelValues(string(k.kind)).Observe(seconds(d))
	}
}

func (m *changeMetrics) converged(d time.Duration) { m.convergence.Observe(seconds(d)) }

// distributed is called once for each change.
func (m *changeMetrics) distributed(r *record) {
	stages, total := r.timeline().Split(time.Nanosecond)
	m.debounce.Observe(r.published.get().Seconds())
	m.derive.Observe(stages[StageDerive].Seconds())
	for _, k := range r.kinds {
		for _, s := range Stages {
			m.propagation.WithLabelValues(string(k.kind), s.String()).Observe(stages[s].Seconds())
		}
		m.propagation.WithLabelValues(string(k.kind), "total").Observe(total.Seconds())
	}
	for o, name := range outcomeNames {
		m.outcomes.WithLabelValues(name).Add(float64(r.outcome(distribution.Outcome(o))))
	}
}

var outcomeNames = [numOutcomes]string{
	distribution.ACKed: "acked", distribution.NotConcerned: "not_concerned", distribution.NACKed: "nacked", distribution.Gone: "gone",
}
