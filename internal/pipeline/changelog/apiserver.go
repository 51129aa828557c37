package changelog

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// APIServer is how well a Kubernetes API server is heard at a moment.
type APIServer struct {
	Failing map[string]time.Duration // for how long requests about a kind fail; 0: they do not
	Quiet   time.Duration            // since when no heartbeat of ours was seen
	Beats   bool                     // some are written
}

// apiServer are the gauges of that, asked when they are read.
type apiServer struct {
	look           func() APIServer
	failing, quiet *prometheus.Desc
}

// WatchAPIServer registers the gauges of how well the API server is heard.
func (m *Metrics) WatchAPIServer(look func() APIServer) {
	m.Registry.MustRegister(&apiServer{
		look: look,
		failing: prometheus.NewDesc("moonsail_apiserver_failing_seconds",
			"For how long requests to the Kubernetes API server about a kind have failed; 0: the last one was answered.", []string{"kind"}, nil),
		quiet: prometheus.NewDesc("moonsail_apiserver_heartbeat_age_seconds",
			"Since when no write of the heartbeat was seen by its watch, which shares its connection with all others.", nil, nil),
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
