package changelog

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/version"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Metrics are the control plane's, in a registry of their own. Istio's names are used,
// with their meaning, wherever Istio has one for the thing; the rest is moonsail_.
type Metrics struct {
	Registry *prometheus.Registry

	versions    versions                 // of proxies
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
	scopes      prometheus.Counter       // moonsail_scopes_refused_total

	outcomes     *prometheus.CounterVec // moonsail_change_outcomes_total
	superseded   prometheus.Counter     // moonsail_superseded_total
	forgotten    prometheus.Counter     // moonsail_changes_forgotten_total
	linesDropped prometheus.Counter     // moonsail_change_log_lines_dropped_total
	inUse        prometheus.Histogram   // moonsail_in_use_seconds
	samples      *prometheus.CounterVec // moonsail_in_use_samples_total
	untraced     prometheus.Counter     // moonsail_traces_dropped_total
	spans        *prometheus.CounterVec // moonsail_trace_spans_total
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
	m.scopes = m.counter("moonsail_scopes_refused_total", "Streams that were refused because their proxy's identity has as many scopes as it may.")
	return m
}

func (m *Metrics) info() {
	v := version.Get()
	m.gaugeVec("pilot_info", "Pilot version and build information.", "version").WithLabelValues(v.Version).Set(1)
	m.gaugeVec("moonsail_build_info", "The build of Moonsail.", "version", "commit", "go").
		WithLabelValues(v.Version, v.Commit, v.Go).Set(1)
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

// GroupsRefused counts a stream that was refused because its identity has as many scopes as it may.
func (m *Metrics) GroupsRefused() { m.scopes.Inc() }

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
