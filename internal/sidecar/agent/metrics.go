package agent

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/moonsail/moonsail/internal/version"
)

// metrics are the agent's own. A metric with a name of Istio's agent has the same meaning.
type metrics struct {
	registry *prometheus.Registry

	starts   prometheus.Counter
	restarts prometheus.Counter
	up       prometheus.Gauge
	ready    prometheus.Gauge
	startup  prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		starts: prometheus.NewCounter(prometheus.CounterOpts{Name: "moonsail_agent_envoy_starts_total",
			Help: "Starts of Envoy."}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{Name: "moonsail_agent_envoy_restarts_total",
			Help: "Crashes of Envoy after which the agent started it again."}),
		up: prometheus.NewGauge(prometheus.GaugeOpts{Name: "moonsail_agent_envoy_up",
			Help: "Whether an Envoy process runs."}),
		ready: prometheus.NewGauge(prometheus.GaugeOpts{Name: "moonsail_agent_ready",
			Help: "Whether Envoy was live and configured at the last check."}),
		startup: prometheus.NewGauge(prometheus.GaugeOpts{Name: "istio_agent_startup_duration_seconds",
			Help: "Time from the last start of Envoy until it was ready, in seconds."}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "istio_build", Help: "Istio component build info: component=proxy is a sidecar or gateway.",
		ConstLabels: prometheus.Labels{"component": "proxy", "tag": version.Get().Version}})
	build.Set(1)
	m.registry.MustRegister(m.starts, m.restarts, m.up, m.ready, m.startup, build)
	// The prefix, as in Istio, leaves the names go_* and process_* to the application.
	prefixed := prometheus.WrapRegistererWithPrefix("istio_agent_", m.registry)
	prefixed.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) setReady(ready bool) {
	m.ready.Set(0)
	if ready {
		m.ready.Set(1)
	}
}
