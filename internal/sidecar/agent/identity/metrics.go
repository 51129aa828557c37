package identity

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/moonsail/moonsail/internal/security/certpem"
)

// Metrics have the names of Istio's agent. A nil *Metrics counts nothing.
type Metrics struct {
	requests *prometheus.CounterVec
	failures *prometheus.CounterVec
	latency  *prometheus.CounterVec
	files    prometheus.Counter

	leaf, roots atomic.Int64 // Unix times of expiry; 0: none
}

// NewMetrics registers the metrics in r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	label := []string{"request_type"}
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "istio_agent_num_outgoing_requests",
			Help: "Number of total outgoing requests (e.g. to a token exchange server, CA, etc.)"}, label),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "istio_agent_num_failed_outgoing_requests",
			Help: "Number of failed outgoing requests (e.g. to a token exchange server, CA, etc.)"}, label),
		latency: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "istio_agent_outgoing_latency",
			Help: "The latency of outgoing requests (e.g. to a token exchange server, CA, etc.) in milliseconds."}, label),
		files: prometheus.NewCounter(prometheus.CounterOpts{Name: "istio_agent_num_file_secret_failures_total",
			Help: "Number of times secret generation failed for files"}),
	}
	r.MustRegister(m.requests, m.failures, m.latency, m.files,
		expiry("default", &m.leaf), expiry("ROOTCA", &m.roots))
	return m
}

// expiry returns a gauge that counts down to at; it is 0 without a certificate.
func expiry(name string, at *atomic.Int64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "istio_agent_cert_expiry_seconds",
		Help:        "The time remaining, in seconds, before the certificate chain will expire. A negative value indicates the cert is expired.",
		ConstLabels: prometheus.Labels{"resource_name": name}}, func() float64 {
		if at.Load() == 0 {
			return 0
		}
		return time.Until(time.Unix(at.Load(), 0)).Seconds()
	})
}

func (m *Metrics) called(took time.Duration, err error) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues("csr").Inc()
	m.latency.WithLabelValues("csr").Add(float64(took.Milliseconds()))
	if err != nil {
		m.failures.WithLabelValues("csr").Inc()
	}
}

// observe stores when secrets expire. For roots it is the first expiry.
func (m *Metrics) observe(s *Secrets) {
	if m == nil {
		return
	}
	if c := s.Leaf(); c != nil {
		m.leaf.Store(c.NotAfter.Unix())
	}
	roots, _ := certpem.Decode(s.Roots)
	for i, r := range roots {
		if at := r.NotAfter.Unix(); i == 0 || at < m.roots.Load() {
			m.roots.Store(at)
		}
	}
}

func (m *Metrics) fileFailure() {
	if m != nil {
		m.files.Inc()
	}
}
