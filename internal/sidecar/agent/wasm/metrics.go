package wasm

import "github.com/prometheus/client_golang/prometheus"

// Metrics count fetches. They have Istio's names where Istio counts the same.
type Metrics struct {
	lookups *prometheus.CounterVec
	fetches *prometheus.CounterVec
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "istio_agent_wasm_cache_lookup_count", Help: "Modules of plugins that were asked for, by whether they were there.",
		}, []string{"hit"}),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "istio_agent_wasm_remote_fetch_count", Help: "Modules of plugins that were fetched, by what came of it.",
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
