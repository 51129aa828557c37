package telemetry

import (
	"cmp"
	"slices"
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	dataaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	statsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/xds/callstats"
)

const statsLogger = "envoy.access_loggers.stats"

// Statistics scopes are shared by all listeners of a direction, so that counts survive a change of listeners. They are
// bounded, because callers choose some labels. Callers can use up the server's scope, but not the client's.
var (
	clientScope = statsScope("istio")
	serverScope = statsScope("istio-inbound")
	clientLive  = liveScope("istio-live")
	serverLive  = liveScope("istio-inbound-live")
)

func statsScope(name string) *typev3.Scope {
	return &typev3.Scope{
		Prefix: "istio", SharingName: name,
		MaxCounters: wrapperspb.UInt32(callstats.MaxSeries), MaxHistograms: wrapperspb.UInt32(3 * callstats.MaxSeries),
	}
}

// liveScope has a gauge for each open connection, of the bytes so far. A counter would add the totals that Envoy logs
// periodically. The agent adds up the gauges when it is scraped (package istiometrics). Gauges of closed
// connections are evicted at the bootstrap's stats_eviction_interval. Beyond the bound, bytes count when a
// connection ends.
func liveScope(name string) *typev3.Scope {
	return &typev3.Scope{Prefix: "istio", SharingName: name, MaxGauges: wrapperspb.UInt32(2 * maxLive), EnableEviction: true}
}

// maxLive bounds the connections of a direction whose bytes count before they end.
const maxLive = 1000

// noBytes is a format that is 0 for connections: a gauge does not accept a constant.
const noBytes = "%RESPONSE_CODE%"

// metricNames are the names of the metrics, after "istio_".
var metricNames = map[model.Metric]string{
	model.MetricRequests:     "requests_total",
	model.MetricDuration:     "request_duration_milliseconds",
	model.MetricRequestSize:  "request_bytes",
	model.MetricResponseSize: "response_bytes",
	model.MetricTCPOpened:    "tcp_connections_opened_total",
	model.MetricTCPClosed:    "tcp_connections_closed_total",
	model.MetricTCPSent:      "tcp_sent_bytes_total",
	model.MetricTCPReceived:  "tcp_received_bytes_total",
}

// Formats of parts of a call: the service is in the metadata of clusters, the workload in that of endpoints.
const (
	serviceFormat  = "%METADATA(CLUSTER:istio:service)%"
	endpointFormat = "%METADATA(UPSTREAM_HOST:istio:workload)%"
	peerFormat     = "%FILTER_STATE(" + peerState + ":PLAIN)%"
)

// callParts are the parts of a call whose formats differ between metrics.
type callParts struct {
	protocol, code, grpc string
	peer                 string
	flags                string // empty: those of the response
}

// callFormat returns the format of callstats.CallTag. Parts whose labels are removed are empty.
func callFormat(t *ir.Telemetry, p callParts, removed []string) string {
	reporter, own, other, peer := callstats.Source, "%UPSTREAM_LOCAL_URI_SAN%", "%UPSTREAM_PEER_URI_SAN%", endpointFormat
	ownLabel, otherLabel := "source_principal", "destination_principal"
	if t.Server {
		reporter, own, other, peer = callstats.Destination, "%DOWNSTREAM_LOCAL_URI_SAN%", "%DOWNSTREAM_PEER_URI_SAN%", p.peer
		ownLabel, otherLabel = otherLabel, ownLabel
	}
	part := func(label, format string) string {
		if slices.Contains(removed, label) {
			return ""
		}
		return format
	}
	call := callstats.Call{
		Reporter: reporter, Protocol: p.protocol, Code: part("response_code", p.code), GRPC: part("grpc_response_status", p.grpc),
		Flags: part("response_flags", cmp.Or(p.flags, "%RESPONSE_FLAGS%")), Service: serviceFormat,
		Principal: part(ownLabel, own), PeerPrincipal: part(otherLabel, other), Peer: peer,
	}
	return call.Text()
}

// statistics configures the stats logger for the enabled metrics.
type statistics struct {
	telemetry *ir.Telemetry
	parts     callParts
	config    *statsv3.Config
}

func newStatistics(t *ir.Telemetry, parts callParts) *statistics {
	scope := clientScope
	if t.Server {
		scope = serverScope
	}
	return &statistics{telemetry: t, parts: parts, config: &statsv3.Config{StatsScope: scope}}
}

// stat returns nil if the metric is disabled.
func (s *statistics) stat(metric model.Metric) *statsv3.Config_Stat {
	i := slices.IndexFunc(s.telemetry.Metrics, func(m ir.Metric) bool { return m.Metric == metric })
	if i < 0 {
		return nil
	}
	m := &s.telemetry.Metrics[i]
	tags := []*statsv3.Config_Tag{{Name: callstats.CallTag, ValueFormat: callFormat(s.telemetry, s.parts, m.Removed)}}
	if len(m.Removed) > 0 {
		tags = append(tags, &statsv3.Config_Tag{Name: callstats.RemovedTag, ValueFormat: strings.Join(m.Removed, ",")})
	}
	for _, t := range m.Tags {
		tags = append(tags, &statsv3.Config_Tag{Name: t.Name, ValueFormat: t.Format})
	}
	return &statsv3.Config_Stat{Name: metricNames[metric], Tags: tags}
}

// count adds a counter of the values of a format; empty: of requests.
func (s *statistics) count(metric model.Metric, format string) {
	stat := s.stat(metric)
	if stat == nil {
		return
	}
	c := &statsv3.Config_Counter{Stat: stat, ValueFormat: format}
	if format == "" {
		c.ValueFixed = wrapperspb.UInt64(1)
	}
	s.config.Counters = append(s.config.Counters, c)
}

// live adds a gauge of the connection, which Envoy sets when it writes a log of a type.
func (s *statistics) live(metric model.Metric, at dataaccesslogv3.AccessLogType, format string) {
	stat := s.stat(metric)
	if stat == nil {
		return
	}
	stat.Name = strings.TrimSuffix(stat.Name, "_total") + callstats.LiveSuffix
	stat.Tags = append(stat.Tags, &statsv3.Config_Tag{Name: callstats.ConnectionTag, ValueFormat: "%CONNECTION_ID%"})
	s.config.Gauges = append(s.config.Gauges, &statsv3.Config_Gauge{
		Stat: stat, ValueFormat: format, Set: &statsv3.Config_Gauge_Set{LogType: at},
	})
}

func (s *statistics) histogram(metric model.Metric, unit statsv3.Config_Histogram_Unit, format string) {
	if stat := s.stat(metric); stat != nil {
		s.config.Histograms = append(s.config.Histograms, &statsv3.Config_Histogram{Stat: stat, Unit: unit, ValueFormat: format})
	}
}

// appendLog adds the logger if it has metrics.
func (s *statistics) appendLog(logs []*accesslogv3.AccessLog, filter *accesslogv3.AccessLogFilter) []*accesslogv3.AccessLog {
	if len(s.config.Counters)+len(s.config.Histograms)+len(s.config.Gauges) == 0 {
		return logs
	}
	return append(logs, packedLog(statsLogger, s.config, filter))
}

// httpStatistics are two loggers, for gRPC and for other requests. To distinguish them for each metric would cost
// more. peer is the format of the caller's workload; empty: callers cannot be trusted.
func httpStatistics(t *ir.Telemetry, peer string) []*accesslogv3.AccessLog {
	if t == nil || len(t.Metrics) == 0 {
		return nil
	}
	var out []*accesslogv3.AccessLog
	for _, p := range []callParts{
		{protocol: "http", code: "%RESPONSE_CODE%", peer: peer},
		{protocol: "grpc", code: "%RESPONSE_CODE%", grpc: "%GRPC_STATUS_NUMBER%", peer: peer},
	} {
		s := newStatistics(t, p)
		s.count(model.MetricRequests, "")
		s.histogram(model.MetricDuration, statsv3.Config_Histogram_Milliseconds, "%DURATION%")
		s.histogram(model.MetricRequestSize, statsv3.Config_Histogram_Bytes, "%BYTES_RECEIVED%")
		s.histogram(model.MetricResponseSize, statsv3.Config_Histogram_Bytes, "%BYTES_SENT%")
		out = s.appendLog(out, isGRPC(p.protocol != "grpc"))
	}
	return out
}

func isGRPC(not bool) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_HeaderFilter{
		HeaderFilter: &accesslogv3.HeaderFilter{Header: &routev3.HeaderMatcher{
			Name: "content-type", InvertMatch: not, TreatMissingHeaderAsEmpty: true,
			HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
				MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "application/grpc"},
			}},
		}},
	}}
}
