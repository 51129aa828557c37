package changelog

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// streamMetrics are the metrics of the xDS server.
type streamMetrics struct {
	versions  *versions               // of proxies
	proxies   *prometheus.GaugeVec    // pilot_xds
	pushes    [resource.NumTypes]push // by type
	queued    prometheus.Histogram    // pilot_proxy_queue_time
	delivered prometheus.Histogram    // pilot_xds_send_time
	rejects   *prometheus.CounterVec  // pilot_total_xds_rejects
	groups    prometheus.Counter      // moonsail_scopes_refused_total
}

// push has the metrics of the responses of one type.
type push struct {
	count         prometheus.Counter  // pilot_xds_pushes
	full, partial prometheus.Counter  // moonsail_pushes_total
	bytes         prometheus.Observer // pilot_xds_config_size_bytes
	took          prometheus.Observer // pilot_xds_push_time
}

func newStreamMetrics(r registry) streamMetrics {
	m := streamMetrics{versions: &versions{known: map[string]bool{}}}
	m.proxies = r.gaugeVec("pilot_xds", "Number of endpoints connected to this pilot using XDS.", "version")
	count := r.counterVec("pilot_xds_pushes", "Responses sent, by type of resource.", "type")
	bytes := r.histogramVec("pilot_xds_config_size_bytes", "Distribution of configuration sizes pushed to clients.",
		[]float64{1, 1000, 10000, 100000, 1000000, 4000000, 10000000, 40000000}, "type")
	extent := r.counterVec("moonsail_pushes_total",
		"Responses sent, by type of resource and extent. full: the first one of its type on a stream, and state-of-the-world responses that must have everything; "+
			"partial: only what differs.", "type", "extent")
	took := r.histogramVec("pilot_xds_push_time", "Total time in seconds to push a response, from the decision until the transport has it.", quick, "type")
	for _, t := range resource.Types {
		name := metricType(t.Type)
		m.pushes[t.Type] = push{
			count: count.WithLabelValues(name), full: extent.WithLabelValues(name, "full"), partial: extent.WithLabelValues(name, "partial"),
			bytes: bytes.WithLabelValues(t.URL), took: took.WithLabelValues(name),
		}
	}
	m.queued = r.histogram("pilot_proxy_queue_time", "Time in seconds from the announcement of a change to a stream until the stream handles it.", quick)
	m.delivered = r.histogram("pilot_xds_send_time", "Total time in seconds to send generated configuration: of a response, until the transport has it.", quick)
	m.rejects = r.counterVec("pilot_total_xds_rejects", "Total number of XDS responses from pilot rejected by proxy.", "type")
	m.groups = r.counter("moonsail_scopes_refused_total", "Streams that were refused because their proxy's identity has reached its limit of proxy groups.")
	return m
}

// metricType is Istio's label value for a type, for example "cds".
func metricType(t resource.Type) string { return strings.ToLower(t.String()) }

// Connected counts a stream of a proxy of an Istio version; delta is 1 or -1.
func (m *streamMetrics) Connected(istioVersion string, delta int) {
	if istioVersion == "" {
		istioVersion = "unknown" // Istio's word
	}
	m.proxies.WithLabelValues(m.versions.label(istioVersion)).Add(float64(delta))
}

// Pushed counts a response; full: it contains more than what differs.
func (m *streamMetrics) Pushed(t resource.Type, bytes int, full bool) {
	p := &m.pushes[t]
	p.count.Inc()
	p.bytes.Observe(float64(bytes))
	if full {
		p.full.Inc()
	} else {
		p.partial.Inc()
	}
}

// Queued records how long a stream with something to send waited for its turn.
func (m *streamMetrics) Queued(d time.Duration) { m.queued.Observe(seconds(d)) }

// Took records how long a push took.
func (m *streamMetrics) Took(t resource.Type, d time.Duration) { m.pushes[t].took.Observe(seconds(d)) }

// Delivered records how long the transport took to accept a response.
func (m *streamMetrics) Delivered(d time.Duration) { m.delivered.Observe(seconds(d)) }

// Rejected counts a NACK.
func (m *streamMetrics) Rejected(t resource.Type) { m.rejects.WithLabelValues(metricType(t)).Inc() }

// GroupsRefused counts a stream that was refused because its identity has reached its limit of proxy groups.
func (m *streamMetrics) GroupsRefused() { m.groups.Inc() }

// Proxies report their version, so the number and the length (in bytes) of versions with a series are
// bounded.
const (
	maxVersions  = 32
	maxVersion   = 64
	otherVersion = "other"
)

// versions are those with a series: the first ones that connected.
type versions struct {
	mu    sync.Mutex // guards known
	known map[string]bool
}

// label returns the label value of a version. It is always the same for a version.
func (v *versions) label(version string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.known[version]:
		return version
	case len(v.known) == maxVersions || len(version) > maxVersion:
		return otherVersion
	}
	v.known[version] = true
	return version
}
