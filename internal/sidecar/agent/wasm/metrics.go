package wasm

import "github.com/prometheus/client_golang/prometheus"

// Metrics count fetches. Metrics that Istio has too have its names.
type Metrics struct {
	lookups *prometheus.CounterVec
	fetches *prometheus.CounterVec
}

// NewMetrics registers the metrics in r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "istio_agent_wasm_cache_lookup_count", Help: "Lookups of Wasm modules in the cache, by result.",
		}, []string{"hit"}),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "istio_agent_wasm_remote_fetch_count", Help: "Fetches of Wasm modules, by result.",
		}, []string{"result"}),
	}
	r.MustRegister(m.lookups, m.fetches)
	return m
}

func (m *Metrics) had() { m.lookups.WithLabelValues("true").Inc() }

func (m *Metrics) fetched(err error) {
	m.lookups.WithLabelValues("false").Inc()
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.fetches.WithLabelValues(result).Inc()
}
