// Package scrape answers scrapes of a sidecar's metrics. It merges the metrics of the agent, of Envoy and of the
// application, and converts Envoy's to Istio's standard metrics.
package scrape

import (
	"bytes"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/moonsail/moonsail/internal/sidecar/agent/inspect"
	"github.com/moonsail/moonsail/internal/sidecar/agent/istiometrics"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/xds/callstats"
)

// Paths of the status port.
const (
	MergedPath = "/stats/prometheus"
	// EnvoyPath has Envoy's metrics alone. The Prometheus listener forwards to it.
	EnvoyPath = inspect.PathMetrics
)

// maxConcurrent bounds the scrapes that are answered at the same time; others wait. Each may take some MB and keeps
// Envoy's main thread busy.
const maxConcurrent = 8

// Options of a Merger.
type Options struct {
	Registry *prometheus.Registry // the agent's metrics; New adds its own
	Admin    *envoy.Admin
	Workload *callstats.Workload // the sidecar's, for labels of Istio's metrics
	Apps     []App
	Bind     string // address of the sidecar's ports; the application is asked there if it is a loopback address
	// OwnPorts serve the sidecar's metrics. Apps at one of them are not scraped.
	OwnPorts []uint16
	Log      *slog.Logger
}

// Merger answers scrapes.
type Merger struct {
	Options
	live     atomic.Pointer[istiometrics.Live] // of the present Envoy's connections
	warned   [2]atomic.Bool                    // that Envoy has almost MaxSeries series, by index of istiometrics.Sides
	appFails []atomic.Int64                    // scrapes that failed since the last that did not, by index of Apps
	scrapes  prometheus.Counter
	failures *prometheus.CounterVec
	series   *prometheus.GaugeVec
}

// New registers the metrics about scrapes in o.Registry.
func New(o Options) *Merger {
	m := &Merger{
		Options: o, appFails: make([]atomic.Int64, len(o.Apps)),
		scrapes: prometheus.NewCounter(prometheus.CounterOpts{Name: "istio_agent_scrapes_total",
			Help: "Scrapes of the merged metrics."}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "istio_agent_scrape_failures_total",
			Help: "Failures to get metrics for a scrape, by their source: agent, envoy or application."}, []string{"type"}),
		series: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "moonsail_agent_call_series",
			Help: "Series of Istio's metrics in Envoy, by reporter. Envoy keeps at most 2000 for each reporter."}, []string{"reporter"}),
	}
	o.Registry.MustRegister(m.scrapes, m.failures, m.series)
	return m
}

// Register adds the pages to mux.
func (m *Merger) Register(mux *http.ServeMux) {
	limit := limitConcurrent(maxConcurrent)
	mux.HandleFunc("GET "+MergedPath, limit(m.merged))
	mux.HandleFunc("GET /metrics", limit(m.merged))
	mux.HandleFunc("GET "+EnvoyPath, limit(m.envoy))
}

// EnvoyStarted tells the Merger that another Envoy process has started, whose counters begin at 0.
func (m *Merger) EnvoyStarted() { m.live.Store(&istiometrics.Live{}) }

// limitConcurrent returns a wrapper that lets at most n requests run at the same time, counted over all handlers that it
// wraps. A request counts until its answer is written.
func limitConcurrent(n int) func(http.HandlerFunc) http.HandlerFunc {
	slots := make(chan struct{}, n)
	return func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
				h(w, r)
			case <-r.Context().Done():
			}
		}
	}
}

// merged writes the metrics of the agent, Envoy and the application. It leaves out and counts a source that fails,
// because the others are worth more than an error.
func (m *Merger) merged(w http.ResponseWriter, r *http.Request) {
	m.scrapes.Inc()
	var fromEnvoy bytes.Buffer
	live := m.live.Load() // before the request, so that it belongs to the Envoy that answers or an earlier one
	if m.readEnvoy(r, &fromEnvoy) != nil {
		fromEnvoy.Reset()
	}
	fromApps := m.readApps(r)
	families, err := m.Registry.Gather()
	if err != nil {
		m.failures.WithLabelValues("agent").Inc()
	}
	format := expfmt.NewFormat(expfmt.TypeTextPlain)
	w.Header().Set("Content-Type", string(format))
	encoder := expfmt.NewEncoder(w, format)
	for _, f := range families {
		if encoder.Encode(f) != nil {
			return // the scraper closed the connection
		}
	}
	_ = istiometrics.Rewrite(w, fromEnvoy.Bytes(), m.Workload, live) // fails if the scraper closed the connection
	for _, body := range fromApps {
		_, _ = w.Write(body)
	}
}

// envoy writes Envoy's metrics.
func (m *Merger) envoy(w http.ResponseWriter, r *http.Request) {
	var raw bytes.Buffer
	live := m.live.Load()
	if err := m.readEnvoy(r, &raw); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	_ = istiometrics.Rewrite(w, raw.Bytes(), m.Workload, live) // fails if the scraper closed the connection
}

// readEnvoy gets the metrics of Envoy that the request's query selects. Without a query these are all metrics, of which
// it counts the series.
func (m *Merger) readEnvoy(r *http.Request, to *bytes.Buffer) error {
	if err := m.Admin.Prometheus(r.Context(), r.URL.RawQuery, to); err != nil {
		m.failures.WithLabelValues("envoy").Inc()
		return err
	}
	if r.URL.RawQuery == "" {
		m.countSeries(to.Bytes())
	}
	return nil
}

// countSeries sets the gauges of series. It warns once for each reporter before Envoy reaches its limit: Envoy does not
// count calls whose labels would need another series.
func (m *Merger) countSeries(fromEnvoy []byte) {
	series := istiometrics.Series(fromEnvoy)
	for i, side := range istiometrics.Sides {
		n := series[side]
		m.series.WithLabelValues(side).Set(float64(n))
		if n < callstats.MaxSeries*9/10 || m.warned[i].Swap(true) {
			continue
		}
		m.Log.Warn("Envoy has almost reached its limit of series for calls and will not count calls with new labels: "+
			"remove labels with a Telemetry's tagOverrides, or find out which callers use many names",
			"reporter", side, "series", n, "limit", callstats.MaxSeries)
	}
}
