package changelog

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/moonsail/moonsail/internal/model"
)

// controlPlaneMetrics are the metrics of the other parts of the control plane: the Kubernetes API server as
// a source, statuses and the webhook.
type controlPlaneMetrics struct {
	registry   *prometheus.CounterVec   // pilot_k8s_reg_events
	config     *prometheus.CounterVec   // pilot_k8s_cfg_events
	apiDelay   *prometheus.HistogramVec // moonsail_apiserver_delay_seconds
	statuses   *prometheus.CounterVec   // moonsail_status_writes_total
	admissions *prometheus.CounterVec   // moonsail_admissions_total
	panics     *prometheus.CounterVec   // moonsail_panics_total
	validated  struct{ passed, failed prometheus.Counter }
	injections struct{ requests, success, skipped, failure prometheus.Counter }
	crowded    prometheus.Counter // moonsail_connections_refused_total
}

func newControlPlaneMetrics(r registry) controlPlaneMetrics {
	m := controlPlaneMetrics{
		registry: r.counterVec("pilot_k8s_reg_events",
			"Events from k8s registry: of Kubernetes' own objects. updatesame: an update without meaning to the mesh.", "type", "event"),
		config: r.counterVec("pilot_k8s_cfg_events",
			"Events from k8s config: of Istio's objects. updatesame: an update without meaning to the mesh.", "type", "event"),
		apiDelay: r.histogramVec("moonsail_apiserver_delay_seconds",
			"Delay of the Kubernetes API server. of=write: a write of the heartbeat object, from request to response. "+
				"of=watch: from the request of that write to its watch event, in microseconds: an upper bound of the delay from commit to event. "+
				"of=object: from the last write of any object to its watch event. The API server records that time in whole seconds, rounded down, "+
				"so the value is up to 1 s too long and depends on its clock.", fine, "of"),
		statuses: r.counterVec("moonsail_status_writes_total",
			"Writes of Istio objects' statuses. result=conflict: another writer was faster, and the object was read again.", "result"),
		admissions: r.counterVec("moonsail_admissions_total", "Objects that the webhooks checked. result=limited: there were too many requests, and the client got 429.", "result"),
		crowded: r.counter("moonsail_connections_refused_total",
			"Connections at the port with TLS that were closed because too many peers had not shown a certificate, in all or at one address."),
		panics: r.counterVec("moonsail_panics_total",
			"Panics that ended the work on one object or request: bugs. in=gateway: a deployment of a Gateway.", "in"),
	}
	m.validated.passed = r.counter("galley_validation_passed", "Resource is valid: the validating webhook accepted an object.")
	m.validated.failed = r.counter("galley_validation_failed", "Resource validation failed: the validating webhook refused an object.")
	m.injections.requests = r.counter("sidecar_injection_requests_total", "Total number of sidecar injection requests.")
	m.injections.success = r.counter("sidecar_injection_success_total", "Total number of successful sidecar injection requests.")
	m.injections.skipped = r.counter("sidecar_injection_skip_total", "Total number of skipped sidecar injection requests.")
	m.injections.failure = r.counter("sidecar_injection_failure_total", "Total number of failed sidecar injection requests.")
	return m
}

// KubernetesEvent counts an event of the API server; custom: of a kind of Istio.
func (m *controlPlaneMetrics) KubernetesEvent(kind string, custom bool, event string) {
	if custom {
		m.config.WithLabelValues(kind, event).Inc()
		return
	}
	m.registry.WithLabelValues(kind, event).Inc()
}

// APIServerDelay records a delay of the API server.
func (m *controlPlaneMetrics) APIServerDelay(of string, d time.Duration) {
	m.apiDelay.WithLabelValues(of).Observe(seconds(d))
}

// StatusWrite counts a write of a status: written, conflict, gone or failed.
func (m *controlPlaneMetrics) StatusWrite(result string) { m.statuses.WithLabelValues(result).Inc() }

// Admission counts an answer of the validating webhook: allowed, refused or unreadable.
func (m *controlPlaneMetrics) Admission(result string) {
	m.admissions.WithLabelValues(result).Inc()
	switch result {
	case "allowed":
		m.validated.passed.Inc()
	case "refused", "unreadable":
		m.validated.failed.Inc()
	}
}

// Injection counts an answer of the webhook that injects sidecars: injected, skipped, refused or unreadable.
func (m *controlPlaneMetrics) Injection(result string) {
	m.admissions.WithLabelValues(result).Inc()
	m.injections.requests.Inc()
	switch result {
	case "injected":
		m.injections.success.Inc()
	case "skipped":
		m.injections.skipped.Inc()
	default:
		m.injections.failure.Inc()
	}
}

// Panicked counts a panic in a part of the control plane: gateway.
func (m *controlPlaneMetrics) Panicked(in string) { m.panics.WithLabelValues(in).Inc() }

// ConnectionRefused counts a connection that was closed because there are too many of unauthenticated peers.
func (m *controlPlaneMetrics) ConnectionRefused() { m.crowded.Inc() }

// Inventory registers gauges of the mesh's content: services as the derived state counts them, and the
// source objects of each kind.
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

// IntakeDepth registers gauges of the depth of the intake, by kind.
func (m *Metrics) IntakeDepth(depth func(model.Kind) int) {
	for _, k := range model.Kinds {
		m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pilot_worker_queue_depth", Help: "Objects of a kind whose events wait for the next batch.",
			ConstLabels: prometheus.Labels{"queueID": string(k)},
		}, func() float64 { return float64(depth(k)) }))
	}
}

// ControlPlanes registers the metrics of the other control planes of the mesh. count returns how many are
// known, how many of these answer, and how many have been silent for too long to wait for them. failed counts
// a question that one of them did not answer.
func (m *Metrics) ControlPlanes(count func() (known, answering, silent int)) (failed func(question string)) {
	states := map[string]func() int{
		"known":     func() int { known, _, _ := count(); return known },
		"answering": func() int { _, answering, _ := count(); return answering },
		"silent":    func() int { _, _, silent := count(); return silent },
	}
	for state, value := range states {
		m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "moonsail_control_planes", Help: "Other control planes of the mesh. state=known: all; answering: of these, those that answer; silent: of these, those that do not.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(value()) }))
	}
	questions := registry{m.Registry}.counterVec("moonsail_control_plane_questions_failed_total", "Questions to other control planes that were not answered.", "question")
	return func(question string) { questions.WithLabelValues(question).Inc() }
}

// APIServer is the state of the connection to a Kubernetes API server at one moment.
type APIServer struct {
	Failing map[string]time.Duration // how long requests for a kind have failed; 0: they do not
	Quiet   time.Duration            // since the last heartbeat that was observed
	Beats   bool                     // heartbeats are written
}

// apiServer exports an APIServer, which it asks for when it is read.
type apiServer struct {
	look           func() APIServer
	failing, quiet *prometheus.Desc
}

// WatchAPIServer registers the gauges of the connection to the API server.
func (m *Metrics) WatchAPIServer(look func() APIServer) {
	m.Registry.MustRegister(&apiServer{
		look: look,
		failing: prometheus.NewDesc("moonsail_apiserver_failing_seconds",
			"How long requests to the Kubernetes API server for a kind have failed; 0: the last one was answered.", []string{"kind"}, nil),
		quiet: prometheus.NewDesc("moonsail_apiserver_heartbeat_age_seconds",
			"Time since the last write of the heartbeat was observed by its watch, which shares its connection with all others.", nil, nil),
	})
}

// Describe implements prometheus.Collector.
func (a *apiServer) Describe(out chan<- *prometheus.Desc) {
	out <- a.failing
	out <- a.quiet
}

// Collect implements prometheus.Collector.
func (a *apiServer) Collect(out chan<- prometheus.Metric) {
	now := a.look()
	for kind, d := range now.Failing {
		out <- prometheus.MustNewConstMetric(a.failing, prometheus.GaugeValue, d.Seconds(), kind)
	}
	if now.Beats {
		out <- prometheus.MustNewConstMetric(a.quiet, prometheus.GaugeValue, now.Quiet.Seconds())
	}
}

// CAMetrics are the metrics of the certificate authority, by Istio's names.
type CAMetrics struct {
	requested       prometheus.Counter     // citadel_server_csr_count
	unauthenticated prometheus.Counter     // citadel_server_authentication_failure_count
	unreadable      prometheus.Counter     // citadel_server_csr_parsing_err_count
	unsigned        *prometheus.CounterVec // citadel_server_csr_sign_err_count
	issued          prometheus.Counter     // citadel_server_success_cert_issuance_count
}

// CertificateAuthority registers the metrics of the authority, if there is one. rootExpiry and chainExpiry
// return when its first root, and its signing certificate chain, expire.
func (m *Metrics) CertificateAuthority(rootExpiry, chainExpiry func() time.Time) *CAMetrics {
	unix := func(at func() time.Time) func() float64 { return func() float64 { return float64(at().Unix()) } }
	left := func(at func() time.Time) func() float64 { return func() float64 { return time.Until(at()).Seconds() } }
	m.Gauge("citadel_server_root_cert_expiry_timestamp", "The unix timestamp, in seconds, when the root cert will expire.", unix(rootExpiry))
	m.Gauge("citadel_server_root_cert_expiry_seconds",
		"The time remaining, in seconds, before the root cert will expire. A negative value indicates the cert is expired.", left(rootExpiry))
	m.Gauge("citadel_server_cert_chain_expiry_timestamp", "The unix timestamp, in seconds, when the signing cert chain will expire.", unix(chainExpiry))
	m.Gauge("citadel_server_cert_chain_expiry_seconds",
		"The time remaining, in seconds, before the signing cert chain will expire. A negative value indicates the cert is expired.", left(chainExpiry))
	r := registry{m.Registry}
	return &CAMetrics{
		requested:       r.counter("citadel_server_csr_count", "The number of CSRs received."),
		unauthenticated: r.counter("citadel_server_authentication_failure_count", "The number of authentication failures."),
		unreadable:      r.counter("citadel_server_csr_parsing_err_count", "The number of CSRs that were refused because of their content."),
		unsigned:        r.counterVec("citadel_server_csr_sign_err_count", "The number of errors occurred when signing the CSR.", "error"),
		issued:          r.counter("citadel_server_success_cert_issuance_count", "The number of certificates issuances that have succeeded."),
	}
}

// Requested counts a request for a certificate.
func (c *CAMetrics) Requested() { c.requested.Inc() }

// Unauthenticated counts a request whose caller could not be authenticated.
func (c *CAMetrics) Unauthenticated() { c.unauthenticated.Inc() }

// Unreadable counts a request with an invalid CSR.
func (c *CAMetrics) Unreadable() { c.unreadable.Inc() }

// Unsigned counts a request that failed inside the authority.
func (c *CAMetrics) Unsigned(reason string) { c.unsigned.WithLabelValues(reason).Inc() }

// Issued counts a certificate.
func (c *CAMetrics) Issued() { c.issued.Inc() }
