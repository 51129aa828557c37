package changelog

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/moonsail/moonsail/internal/version"
)

// Metrics are the metrics of the control plane. A metric has Istio's name and meaning if Istio has it; all
// others begin with moonsail_.
type Metrics struct {
	Registry *prometheus.Registry

	changeMetrics       // of the change log: metrics_changes.go
	streamMetrics       // of the xDS server: metrics_streams.go
	controlPlaneMetrics // of sources, webhooks and statuses: metrics_controlplane.go
}

// NewMetrics makes and registers all metrics, with those of the Go runtime and the process.
func NewMetrics() *Metrics {
	r := registry{prometheus.NewRegistry()}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	v := version.Get()
	r.gaugeVec("pilot_info", "Pilot version and build information.", "version").WithLabelValues(v.Version).Set(1)
	r.gaugeVec("istio_build", "Istio component build info: component=pilot is the control plane.", "component", "tag").WithLabelValues("pilot", v.Version).Set(1)
	r.gaugeVec("moonsail_build_info", "The build of Moonsail.", "version", "commit", "go").
		WithLabelValues(v.Version, v.Commit, v.Go).Set(1)
	return &Metrics{
		Registry:            r.Registry,
		changeMetrics:       newChangeMetrics(r),
		streamMetrics:       newStreamMetrics(r),
		controlPlaneMetrics: newControlPlaneMetrics(r),
	}
}

// fine are buckets for what takes milliseconds and must not take seconds, in seconds.
var fine = []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60}

// quick are buckets for what takes microseconds, in seconds.
var quick = []float64{.00001, .0001, .001, .01, .1, .5, 1, 3, 5, 10, 20, 30}

// registry makes metrics and registers them. A name that is taken is a bug that the first test finds, hence
// MustRegister.
type registry struct{ *prometheus.Registry }

func (r registry) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	r.MustRegister(c)
	return c
}

func (r registry) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.MustRegister(c)
	return c
}

func (r registry) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	r.MustRegister(g)
	return g
}

func (r registry) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	r.MustRegister(h)
	return h
}

func (r registry) histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	r.MustRegister(h)
	return h
}

// nativeFactor is the ratio of the widths of two successive buckets of a native histogram. nativeBuckets
// bounds their number.
const (
	nativeFactor  = 1.1
	nativeBuckets = 160
)

// nativeVec makes a native histogram that also has buckets, for scrapers that do not ask for native ones.
func (r registry) nativeVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: nativeFactor, NativeHistogramMaxBucketNumber: nativeBuckets, NativeHistogramMinResetDuration: time.Hour}, labels)
	r.MustRegister(h)
	return h
}

// Gauge registers a gauge whose value is computed when it is read.
func (m *Metrics) Gauge(name, help string, value func() float64) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// Counter registers a counter whose value is computed when it is read.
func (m *Metrics) Counter(name, help string, value func() float64) {
	m.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value))
}

// seconds is a duration as metrics have it: in seconds, never negative.
func seconds(d time.Duration) float64 { return max(0, d).Seconds() }
