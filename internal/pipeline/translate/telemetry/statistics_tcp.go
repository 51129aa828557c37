package telemetry

import (
	"math"
	"slices"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dataaccesslogv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

// The moments at which connections are logged, and the response flags of those that did not reach their destination.
var (
	atConnected = ofTypes(dataaccesslogv3.AccessLogType_TcpUpstreamConnected)
	atTimes     = ofTypes(dataaccesslogv3.AccessLogType_TcpPeriodic)
	atEnd       = ofTypes(dataaccesslogv3.AccessLogType_TcpConnectionEnd)
	failed      = &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
		ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{Flags: []string{"UF", "UH", "UO", "NR", "NC", "URX"}},
	}}
)

func ofTypes(types ...dataaccesslogv3.AccessLogType) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_LogTypeFilter{
		LogTypeFilter: &accesslogv3.LogTypeFilter{Types: types},
	}}
}

// anyOf is the disjunction of two filters.
func anyOf(a, b *accesslogv3.AccessLogFilter) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_OrFilter{
		OrFilter: &accesslogv3.OrFilter{Filters: []*accesslogv3.AccessLogFilter{a, b}},
	}}
}

// allOf is a conjunction; a nil filter always matches.
func allOf(filters ...*accesslogv3.AccessLogFilter) *accesslogv3.AccessLogFilter {
	filters = slices.DeleteFunc(filters, func(f *accesslogv3.AccessLogFilter) bool { return f == nil })
	if len(filters) == 1 {
		return filters[0]
	}
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
		AndFilter: &accesslogv3.AndFilter{Filters: filters},
	}}
}

// tcpStatistics counts a connection as opened when it reaches its destination, or when it ends without. It counts bytes
// when the connection ends. Before that, gauges have the bytes so far. At the end they are reset before the bytes are
// counted, so that nothing counts twice (istiometrics.Live). Bytes have no response flags, which are known only
// at the end.
func tcpStatistics(t *ir.Telemetry) []*accesslogv3.AccessLog {
	if t == nil || len(t.Metrics) == 0 {
		return nil
	}
	parts := callParts{protocol: "tcp"}
	opened, ended := newStatistics(t, parts), newStatistics(t, callParts{protocol: "tcp", flags: "-"})
	opened.count(model.MetricTCPOpened, "")
	ended.count(model.MetricTCPSent, "%BYTES_SENT%")
	ended.count(model.MetricTCPReceived, "%BYTES_RECEIVED%")
	ended.parts = parts
	ended.count(model.MetricTCPClosed, "")
	out := opened.appendLog(nil, atConnected)
	out = opened.appendLog(out, allOf(atEnd, failed))
	if t.Every > 0 {
		long := allOf(atEnd, lasted(accesslogv3.ComparisonFilter_GE, loggedFrom(t)))
		out = liveStatistics(t).appendLog(out, anyOf(atTimes, long))
	}
	return ended.appendLog(out, atEnd)
}

// lasted compares the duration of connections, in milliseconds.
func lasted(op accesslogv3.ComparisonFilter_Op, than uint32) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_DurationFilter{
		DurationFilter: &accesslogv3.DurationFilter{Comparison: &accesslogv3.ComparisonFilter{
			Op: op, Value: &corev3.RuntimeUInt32{DefaultValue: than, RuntimeKey: "moonsail.never_set"}, // Envoy requires a key
		}},
	}}
}

// loggedFrom is the duration, in milliseconds, after which a connection may have been logged periodically. Envoy's timers
// may fire up to a tenth early.
func loggedFrom(t *ir.Telemetry) uint32 {
	every := uint32(min(t.Every/time.Millisecond, math.MaxInt32))
	return max(every-every/10, 1)
}

// liveStatistics set the gauges of open connections, and reset them at the end.
func liveStatistics(t *ir.Telemetry) *statistics {
	out := newStatistics(t, callParts{protocol: "tcp", flags: "-"})
	out.config.StatsScope = clientLive
	if t.Server {
		out.config.StatsScope = serverLive
	}
	for _, c := range []struct {
		metric model.Metric
		format string
	}{{model.MetricTCPSent, "%BYTES_SENT%"}, {model.MetricTCPReceived, "%BYTES_RECEIVED%"}} {
		out.live(c.metric, dataaccesslogv3.AccessLogType_TcpPeriodic, c.format)
		out.live(c.metric, dataaccesslogv3.AccessLogType_TcpConnectionEnd, noBytes)
	}
	return out
}

// TCPLogOptions make Envoy log connections also when they reach their destination, and periodically while they are
// open, if metrics need it.
func TCPLogOptions(t *ir.Telemetry) *tcpproxyv3.TcpProxy_TcpAccessLogOptions {
	if t == nil {
		return nil
	}
	wants := func(list ...model.Metric) bool {
		return slices.ContainsFunc(t.Metrics, func(m ir.Metric) bool { return slices.Contains(list, m.Metric) })
	}
	out := &tcpproxyv3.TcpProxy_TcpAccessLogOptions{FlushAccessLogOnConnected: wants(model.MetricTCPOpened)}
	if wants(model.MetricTCPSent, model.MetricTCPReceived) {
		out.AccessLogFlushInterval = envoyproto.Duration(t.Every)
	}
	if !out.FlushAccessLogOnConnected && out.AccessLogFlushInterval == nil {
		return nil
	}
	return out
}
