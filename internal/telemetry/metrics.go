package telemetry

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/version"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Metrics are the control plane's, in a registry of their own. Istio's names are used,
// with their meaning, wherever Istio has one for the thing; the rest is moonsail_.
type Metrics struct {
	Registry *prometheus.Registry

	proxies     *prometheus.GaugeVec     // pilot_xds
	pushes      [resource.NumTypes]push  // pilot_xds_pushes, _push_time, _config_size_bytes; moonsail_pushes_total
	queued      prometheus.Histogram     // pilot_proxy_queue_time
	delivered   prometheus.Histogram     // pilot_xds_send_time
	rejects     *prometheus.CounterVec   // pilot_total_xds_rejects
	convergence prometheus.Histogram     // pilot_proxy_convergence_time
	debounce    prometheus.Histogram     // pilot_debounce_time
	derive      prometheus.Histogram     // pilot_pushcontext_init_seconds
	triggers    *prometheus.CounterVec   // pilot_push_triggers
	inbound     *prometheus.CounterVec   // pilot_inbound_updates
	waited      *prometheus.HistogramVec // pilot_worker_queue_latency
	worked      *prometheus.HistogramVec // pilot_worker_queue_duration
	propagation *prometheus.HistogramVec // moonsail_propagation_seconds
	registry    *prometheus.CounterVec   // pilot_k8s_reg_events
	config      *prometheus.CounterVec   // pilot_k8s_cfg_events
	apiDelay    *prometheus.HistogramVec // moonsail_apiserver_delay_seconds
	statuses    *prometheus.CounterVec   // moonsail_status_writes_total
	admissions  *prometheus.CounterVec   // moonsail_admissions_total

	outcomes     *prometheus.CounterVec // moonsail_change_outcomes_total
	superseded   prometheus.Counter     // moonsail_superseded_total
	forgotten    prometheus.Counter     // moonsail_changes_forgotten_total
	linesDropped prometheus.Counter     // moonsail_change_log_lines_dropped_total
	inUse        prometheus.Histogram   // moonsail_in_use_seconds
	samples      *prometheus.CounterVec // moonsail_in_use_samples_total
	untraced     prometheus.Counter     // moonsail_traces_dropped_total
	spans        *prometheus.CounterVec // moonsail_trace_spans_total
}

type push struct {
	count, whole, partial prometheus.Counter
	bytes, took           prometheus.Observer
}

// fine are buckets for what takes milliseconds and must not take seconds.
var fine = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}

// quick are buckets for what takes microseconds.
var quick = []float64{.00001, .0001, .001, .01, .1, .5, 1, 3, 5, 10, 20, 30}

// NewMetrics makes and registers all metrics, the Go runtime's and the process's too.
func NewMetrics() *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry()}
	m.Registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.info()
	m.streams()
	m.changes()
	m.kubernetes()
	return m
}

func (m *Metrics) info() {
	v := version.Get()
	m.gaugeVec("pilot_info", "Pilot version and build information.", "version").WithLabelValues(v.Version).Set(1)
	m.gaugeVec("moonsail_build_info", "The build of Moonsail.", "version", "commit", "go").
		WithLabelValues(v.Version, v.Commit, v.Go).Set(1)
}

// streams are the metrics of the xDS server.
func (m *Metrics) streams() {
	m.proxies = m.gaugeVec("pilot_xds", "Number of endpoints connected to this pilot using XDS.", "version")
	count := m.counterVec("pilot_xds_pushes", "Responses sent, by type of resource.", "type")
	bytes := m.histogramVec("pilot_xds_config_size_bytes", "Distribution of configuration sizes pushed to clients.",
		[]float64{1, 1000, 10000, 100000, 1000000, 4000000, 10000000, 40000000}, "type")
	extent := m.counterVec("moonsail_pushes_total",
		"Responses sent, by type of resource and extent. full: the first one of its type on a stream, and state-of-the-world responses that must have everything; "+
			"partial: only what differs.", "type", "extent")
	took := m.histogramVec("pilot_xds_push_time", "Total time in seconds to push a response, from the decision until the transport has it.", quick, "type")
	for _, t := range resource.Types {
		name := metricType(t.Type)
		m.pushes[t.Type] = push{
			count: count.WithLabelValues(name), whole: extent.WithLabelValues(name, "full"), partial: extent.WithLabelValues(name, "partial"),
			bytes: bytes.WithLabelValues(t.URL), took: took.WithLabelValues(name),
		}
	}
	m.queued = m.histogram("pilot_proxy_queue_time", "Time in seconds that a proxy with news waits for its turn.", quick)
	m.delivered = m.histogram("pilot_xds_send_time", "Total time in seconds to send generated configuration: of a response, until the transport has it.", quick)
	m.rejects = m.counterVec("pilot_total_xds_rejects", "Total number of XDS responses from pilot rejected by proxy.", "type")
	m.convergence = m.histogram("pilot_proxy_convergence_time",
		"Delay in seconds between config change and a proxy receiving all required configuration: from the first event to that proxy's ACK.", fine)
}

// changes are the metrics of the change log.
func (m *Metrics) changes() {
	m.debounce = m.histogram("pilot_debounce_time",
		"Delay in seconds between the first event of a batch and its being published to streams. There is no debounce timer.", fine)
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
		"Revisions that proxies accepted together with a newer one: work that nobody had to do twice.")
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

// kubernetes are the metrics of a Kubernetes API server as the source. Those of events have
// Istio's names and label values.
func (m *Metrics) kubernetes() {
	m.registry = m.counterVec("pilot_k8s_reg_events",
		"Events from k8s registry: of Kubernetes' own objects. updatesame: an update without meaning to the mesh.", "type", "event")
	m.config = m.counterVec("pilot_k8s_cfg_events",
		"Events from k8s config: of Istio's objects. updatesame: an update without meaning to the mesh.", "type", "event")
	m.apiDelay = m.histogramVec("moonsail_apiserver_delay_seconds",
		"Delay of the Kubernetes API server. of=write: a write of the heartbeat object, request to response. "+
			"of=watch: from the request of that write to its watch event: an upper bound of the way from commit to event, to the microsecond. "+
			"of=object: from when any object was last written to its watch event; the API server records that in whole seconds, "+
			"cut off, so this is up to 1 s too long, and depends on its clock.", fine, "of")
	m.statuses = m.counterVec("moonsail_status_writes_total",
		"Writes of Istio objects' statuses. result=conflict: somebody else had written the object, and it was read again.", "result")
	m.admissions = m.counterVec("moonsail_admissions_total", "Objects that the validating webhook was asked about.", "result")
}

// StatusWrite counts a write of a status: written, conflict, gone or failed.
func (m *Metrics) StatusWrite(result string) { m.statuses.WithLabelValues(result).Inc() }

// Admission counts an answer of the validating webhook: allowed, refused or unreadable.
func (m *Metrics) Admission(result string) { m.admissions.WithLabelValues(result).Inc() }

// KubernetesEvent counts an event of the API server; custom tells Istio's kinds from others.
func (m *Metrics) KubernetesEvent(kind string, custom bool, event string) {
	if custom {
		m.config.WithLabelValues(kind, event).Inc()
		return
	}
	m.registry.WithLabelValues(kind, event).Inc()
}

// APIServerDelay notes a delay of the API server.
func (m *Metrics) APIServerDelay(of string, d time.Duration) {
	m.apiDelay.WithLabelValues(of).Observe(max(0, d).Seconds())
}

// metricType is Istio's label value for a type: "cds".
func metricType(t resource.Type) string { return strings.ToLower(t.String()) }

// Gauge registers a gauge that is asked when it is read.
func (m *Metrics) Gauge(name, help string, value func() float64) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// Inventory registers the gauges of what the mesh has: services as the derived state
// counts them, and the source objects of each kind.
func (m *Metrics) Inventory(services func() int, objects func(model.Kind) int) {
	m.Gauge("pilot_services", "Total services known to pilot.", func() float64 { return float64(services()) })
	m.Gauge("pilot_virt_services", "Total virtual services known to pilot.",
		func() float64 { return float64(objects(model.KindVirtualService)) })
	for _, k := range model.Kinds {
		m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "moonsail_objects", Help: "Source objects in the store.", ConstLabels: prometheus.Labels{"kind": string(k)},
		}, func() float64 { return float64(objects(k)) }))
	}
}

// IntakeDepth registers the depth of the intake, by kind.
func (m *Metrics) IntakeDepth(depth func(model.Kind) int) {
	for _, k := range model.Kinds {
		m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pilot_worker_queue_depth", Help: "Objects of a kind whose events wait for the next batch.",
			ConstLabels: prometheus.Labels{"queueID": string(k)},
		}, func() float64 { return float64(depth(k)) }))
	}
}

// Connected counts a stream of a proxy of that Istio version; delta is 1 or -1.
func (m *Metrics) Connected(istioVersion string, delta int) {
	if istioVersion == "" {
		istioVersion = "unknown" // Istio's word
	}
	m.proxies.WithLabelValues(istioVersion).Add(float64(delta))
}

// Pushed counts a response of so many bytes; whole: not only what differs.
func (m *Metrics) Pushed(t resource.Type, bytes int, whole bool) {
	p := &m.pushes[t]
	p.count.Inc()
	p.bytes.Observe(float64(bytes))
	if whole {
		p.whole.Inc()
	} else {
		p.partial.Inc()
	}
}

// Queued is told how long a stream waited for its turn.
func (m *Metrics) Queued(d time.Duration) { m.queued.Observe(max(0, d).Seconds()) }

// Took is told how long a push took.
func (m *Metrics) Took(t resource.Type, d time.Duration) {
	m.pushes[t].took.Observe(max(0, d).Seconds())
}

// Delivered is told how long the transport took to take a response.
func (m *Metrics) Delivered(d time.Duration) { m.delivered.Observe(max(0, d).Seconds()) }

// Rejected counts a NACK.
func (m *Metrics) Rejected(t resource.Type) { m.rejects.WithLabelValues(metricType(t)).Inc() }

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
		m.outcomes.WithLabelValues(name).Add(float64(r.outcome(server.Outcome(o))))
	}
}

var outcomeNames = [numOutcomes]string{
	server.ACKed: "acked", server.NotConcerned: "not_concerned", server.NACKed: "nacked", server.Gone: "gone",
}
