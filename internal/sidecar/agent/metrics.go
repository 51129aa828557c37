package agent

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics are the agent's own. Names that Istio's agent has keep its meaning.
type metrics struct {
	registry *prometheus.Registry

	starts         prometheus.Counter
	restarts       prometheus.Counter
	up             prometheus.Gauge
	ready          prometheus.Gauge
	startup        prometheus.Gauge
	scrapes        prometheus.Counter
	scrapeFailures *prometheus.CounterVec
	series         *prometheus.GaugeVec
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		starts: prometheus.NewCounter(prometheus.CounterOpts{Name: "moonsail_agent_envoy_starts_total",
			Help: "How often Envoy was started."}),
		restarts: prometheus.NewCounter(prometheus.CounterOpts{Name: "moonsail_agent_envoy_restarts_total",
			Help: "How often Envoy ended by itself and was to be started again."}),
		up: prometheus.NewGauge(prometheus.GaugeOpts{Name: "moonsail_agent_envoy_up",
			Help: "Whether an Envoy process runs."}),
		ready: prometheus.NewGauge(prometheus.GaugeOpts{Name: "moonsail_agent_ready",
			Help: "Whether the last look at Envoy found it live and configured."}),
		startup: prometheus.NewGauge(prometheus.GaugeOpts{Name: "istio_agent_startup_duration_seconds",
			Help: "The time it took for the proxy to start up, in seconds, until it first was ready."}),
		scrapes: prometheus.NewCounter(prometheus.CounterOpts{Name: "istio_agent_scrapes_total",
			Help: "The total number of scrapes."}),
		scrapeFailures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "istio_agent_scrape_failures_total",
			Help: "The total number of failed scrapes."}, []string{"type"}),
		series: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "moonsail_agent_call_series",
			Help: "Counters that Envoy has of Istio's metrics, by reporter; there are 2000 of each at most."}, []string{"reporter"}),
	}
	m.registry.MustRegister(m.starts, m.restarts, m.up, m.ready, m.startup, m.scrapes, m.scrapeFailures, m.series)
	// Prefixed as in Istio, so that an application's go_* and process_* stay its own.
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

func (m *metrics) startedUp(took time.Duration) { m.startup.Set(took.Seconds()) }
