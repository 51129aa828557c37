package changelog

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

type push struct {
	count, whole, partial prometheus.Counter
	bytes, took           prometheus.Observer
}

// streams are the metrics of the xDS server.
func (m *Metrics) streams() {
	m.proxies = m.gaugeVec("pilot_xds", "Number of endpoints connected to this pilot using XDS.", "version")
	count := m.counterVec("pilot_xds_pushes", "Responses sent, by type of resource.", "type")
	bytes := m.histogramVec("pilot_xds_config_size_bytes", "Distribution of configuration sizes pushed to clients.",
		[]float64{1, 1000, 10000, 100000, 1000000, 4000000, 10000000, 40000000}, "type")
	extent := m.counterVec("moonsail_pushes_total",
		"Responses sent, by type of resource and extent. full: the first one of its type on a stream, and state-of-the-world responses that must have everything; "+
			"partial: only what differs.", "type", "extent")
	took := m.histogramVec("pilot_xds_push_time", "Total time in seconds to push a response, from the decision until the transport has it.", quick, "type")
	for _, t := range resource.Types {
		name := metricType(t.Type)
		m.pushes[t.Type] = push{
			count: count.WithLabelValues(name), whole: extent.WithLabelValues(name, "full"), partial: extent.WithLabelValues(name, "partial"),
			bytes: bytes.WithLabelValues(t.URL), took: took.WithLabelValues(name),
		}
	}
	m.queued = m.histogram("pilot_proxy_queue_time", "Time in seconds that a proxy with news waits for its turn.", quick)
	m.delivered = m.histogram("pilot_xds_send_time", "Total time in seconds to send generated configuration: of a response, until the transport has it.", quick)
	m.rejects = m.counterVec("pilot_total_xds_rejects", "Total number of XDS responses from pilot rejected by proxy.", "type")
	m.convergence = m.histogram("pilot_proxy_convergence_time",
		"Delay in seconds between config change and a proxy receiving all required configuration: from the first event to that proxy's ACK.", fine)
}

// metricType is Istio's label value for a type: "cds".
func metricType(t resource.Type) string { return strings.ToLower(t.String()) }

// maxVersions bounds the versions that are told apart: proxies say what they like. maxVersion is the longest, in bytes.
const (
	maxVersions  = 32
	maxVersion   = 64
	otherVersion = "other"
)

// versions are those that have a series of their own: the first that came.
type versions struct {
	mu    sync.Mutex // guards known
	known map[string]bool
}

// label is a version's, always the same.
func (v *versions) label(version string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.known[version]:
		return version
	case len(v.known) == maxVersions || len(version) > maxVersion:
		return otherVersion
	case v.known == nil:
		v.known = map[string]bool{}
	}
	v.known[version] = true
	return version
}

// Connected counts a stream of a proxy of that Istio version; delta is 1 or -1.
func (m *Metrics) Connected(istioVersion string, delta int) {
	if istioVersion == "" {
		istioVersion = "unknown" // Istio's word
	}
	m.proxies.WithLabelValues(m.versions.label(istioVersion)).Add(float64(delta))
}

// Pushed counts a response of so many bytes; whole: not only what differs.
func (m *Metrics) Pushed(t resource.Type, bytes int, whole bool) {
	p := &m.pushes[t]
	p.count.Inc()
	p.bytes.Observe(float64(bytes))
	if whole {
		p.whole.Inc()
	} else {
		p.partial.Inc()
	}
}

// Queued is told how long a stream waited for its turn.
func (m *Metrics) Queued(d time.Duration) { m.queued.Observe(max(0, d).Seconds()) }

// Took is told how long a push took.
func (m *Metrics) Took(t resource.Type, d time.Duration) {
	m.pushes[t].took.Observe(max(0, d).Seconds())
}

// Delivered is told how long the transport took to take a response.
func (m *Metrics) Delivered(d time.Duration) { m.delivered.Observe(max(0, d).Seconds()) }

// Rejected counts a NACK.
func (m *Metrics) Rejected(t resource.Type) { m.rejects.WithLabelValues(metricType(t)).Inc() }
