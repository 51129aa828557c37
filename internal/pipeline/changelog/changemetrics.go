package changelog

import (
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// changes are the metrics of the change log.
func (m *Metrics) changes() {
	m.debounce = m.histogram("pilot_debounce_time",
		"Delay in seconds from the first event of a batch until it is published to streams. Moonsail has no debounce timer.", fine)
	m.derive = m.histogram("pilot_pushcontext_init_seconds", "Total time in seconds to derive what a batch changes.", fine)
	m.triggers = m.counterVec("pilot_push_triggers", "Total number of times a push was triggered, labeled by reason for the push.", "type")
	m.inbound = m.counterVec("pilot_inbound_updates", "Total number of updates received by pilot, after events of one object have coalesced.", "type")
	m.waited = m.histogramVec("pilot_worker_queue_latency",
		"Latency in seconds before the oldest event of a kind in a batch is in the store.", fine, "queueID")
	m.worked = m.histogramVec("pilot_worker_queue_duration",
		"Time in seconds to process a batch, from the store to tables that are ready to be sent, once for each kind of object in it.", fine, "queueID")
	m.propagation = m.nativeVec("moonsail_propagation_seconds",
		"Time of a change in each stage of its way from the first event to the last proxy's answer (stage=total: the whole), once for each kind of object in the change.",
		fine, "kind", "stage")
	m.outcomes = m.counterVec("moonsail_change_outcomes_total",
		"Outcomes of changes for proxies bound to what changed, counted when a change is distributed.", "outcome")
	m.superseded = m.counter("moonsail_superseded_total",
		"Revisions that proxies accepted together with a newer one, so that they were sent once.")
	m.forgotten = m.counter("moonsail_changes_forgotten_total",
		"Changes that left the change log before every proxy concerned had answered.")
	m.linesDropped = m.counter("moonsail_change_log_lines_dropped_total", "Log lines of changes that could not be written in time.")
	m.inUse = m.histogram("moonsail_in_use_seconds",
		"Time from a proxy's ACK of clusters or listeners until its Envoy used them (warmed, active), at most: of some proxies of some changes, see --sample-in-use.", fine)
	m.samples = m.counterVec("moonsail_in_use_samples_total", "Proxies that were asked for that. result=timeout: it did not use them in 30 s; unknown: its agent did not answer.", "result")
	m.untraced = m.counter("moonsail_traces_dropped_total", "Changes that are no trace, as the collector of traces was too slow.")
	m.spans = m.counterVec("moonsail_trace_spans_total", "Spans for the collector of traces. result=exported: it took them; lost: it did not.", "result")
}

// InUse is told what came of asking a proxy whether it uses what it has ACKed, and how long
// after the ACK it did: in_use, timeout or unknown.
func (m *Metrics) InUse(d time.Duration, result string) {
	m.samples.WithLabelValues(result).Inc()
	if result == "in_use" {
		m.inUse.Observe(max(0, d).Seconds())
	}
}

// TraceDropped counts a change that did not become a trace.
func (m *Metrics) TraceDropped() { m.untraced.Inc() }

// Spans counts spans that the collector of traces took, or that were lost.
func (m *Metrics) Spans(n int, exported bool) {
	result := "lost"
	if exported {
		result = "exported"
	}
	m.spans.WithLabelValues(result).Add(float64(n))
}

// changed counts a batch's objects and the reasons to push it.
func (m *Metrics) changed(objects []ChangedObject) {
	reasons := map[string]bool{}
	for _, o := range objects {
		reasons[trigger(o.Kind)] = true
		m.inbound.WithLabelValues(updateType(o)).Inc()
	}
	for r := range reasons {
		m.triggers.WithLabelValues(r).Inc()
	}
}

// trigger is Istio's reason for a push.
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

// updateType is Istio's type of an update.
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

func (m *Metrics) stored(kinds []kindSeen, at time.Time) {
	for _, k := range kinds {
		m.waited.WithLabelValues(string(k.kind)).Observe(max(0, at.Sub(k.observed)).Seconds())
	}
}

// processed is told how long a batch took, from the store to its tables.
func (m *Metrics) processed(kinds []kindSeen, d time.Duration) {
	for _, k := range kinds {
		m.worked.WithLabelValues(string(k.kind)).Observe(max(0, d).Seconds())
	}
}

func (m *Metrics) converged(d time.Duration) { m.convergence.Observe(max(0, d).Seconds()) }

// distributed is called once for each change.
func (m *Metrics) distributed(r *record) {
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
