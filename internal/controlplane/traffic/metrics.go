package traffic

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Istio's metrics that are read.
const (
	metricRequests = "istio_requests_total"
	metricDuration = "istio_request_duration_milliseconds_bucket"
	metricOpened   = "istio_tcp_connections_opened_total"
	metricSent     = "istio_tcp_sent_bytes_total"
	metricReceived = "istio_tcp_received_bytes_total"
)

// inEnvoy matches the names that these metrics have in Envoy. The bytes of open connections are gauges that end in
// callstats.LiveSuffix.
const inEnvoy = `istio\.(requests_total|request_duration_milliseconds|tcp_connections_opened_total|tcp_(sent|received)_bytes_(total|live))`

// Bounds of what a proxy reports. Longer lines and labels are ignored.
const (
	maxLine  = 4 << 10 // bytes
	maxLabel = 256     // bytes of a value
	maxValue = 1e18    // sums and rates of smaller values are finite, which JSON requires
)

// usable reports whether a value of a series counts. NaN and infinities do not.
func usable(value float64) bool { return value >= 0 && value < maxValue }

// labelSet are labels of one series.
type labelSet map[string]string

// call returns the call of a series, and whether its server counted it.
func (l labelSet) call() (c Call, server, ok bool) {
	reporter := l["reporter"]
	c = Call{
		Source: End{
			Namespace: known(l["source_workload_namespace"]), Workload: known(l["source_workload"]),
			Service: known(l["source_canonical_service"]), Version: known(l["source_canonical_revision"]),
		},
		Destination: End{
			Namespace: known(l["destination_workload_namespace"]), Workload: known(l["destination_workload"]),
			Service: known(l["destination_canonical_service"]), Version: known(l["destination_canonical_revision"]),
		},
		Target:   Target{Namespace: known(l["destination_service_namespace"]), Name: known(l["destination_service_name"])},
		Protocol: l["request_protocol"],
	}
	return c, reporter == "destination", reporter == "source" || reporter == "destination"
}

// clone returns a call that does not keep the line that it was read from.
func (c *Call) clone() Call {
	return Call{
		Source: c.Source.clone(), Destination: c.Destination.clone(), Protocol: strings.Clone(c.Protocol),
		Target: Target{Namespace: strings.Clone(c.Target.Namespace), Name: strings.Clone(c.Target.Name)},
	}
}

func (e *End) clone() End {
	return End{
		Namespace: strings.Clone(e.Namespace), Workload: strings.Clone(e.Workload),
		Service: strings.Clone(e.Service), Version: strings.Clone(e.Version),
	}
}

// known returns the value of a label; empty: Istio's word for unknown.
func known(value string) string {
	if value == "unknown" {
		return ""
	}
	return value
}

// serverErrors are the gRPC statuses that OpenTelemetry counts as errors of a server.
var serverErrors = []string{"2", "4", "12", "13", "14", "15"}

// unconnected are Envoy's response flags of TCP connections that do not reach a server.
var unconnected = []string{"UF", "UH", "UO", "NR", "NC", "URX", "DF"}

// failed reports whether a request failed: it has no answer, an HTTP status from 500, or a gRPC status of the
// server's errors. A TCP connection fails if it does not reach a server.
func (l labelSet) failed() bool {
	code := l["response_code"]
	if l["request_protocol"] == "tcp" {
		return slices.ContainsFunc(strings.Split(l["response_flags"], ","), func(f string) bool { return slices.Contains(unconnected, f) })
	}
	return code == "0" || len(code) == 3 && code[0] == '5' || slices.Contains(serverErrors, l["grpc_response_status"])
}

// add adds the value of a series of a metric.
func (s *sums) addSeries(metric string, l labelSet, value float64) {
	switch metric {
	case metricRequests, metricOpened:
		s.requests += value
		s.total += value
		if l.failed() {
			s.errors += value
		}
		if l["connection_security_policy"] == "mutual_tls" {
			s.mutual += value
		}
	case metricSent, metricReceived:
		s.bytes += value
		if l["connection_security_policy"] == "mutual_tls" {
			s.mutualBytes += value
		}
	case metricDuration:
		if le, err := strconv.ParseFloat(l["le"], 64); err == nil && (usable(le) || math.IsInf(le, 1)) {
			s.addBucket(le, value)
		}
	}
}

// parseLine parses a line of Prometheus's text format, if it is one of the metrics. The labels are parts of the line.
func parseLine(line string) (metric string, l labelSet, value float64, ok bool) {
	metric, rest, found := strings.Cut(line, "{")
	if !found || !slices.Contains(readMetrics, metric) {
		return "", nil, 0, false
	}
	l = labelSet{}
	for {
		name, after, found := strings.Cut(rest, `="`)
		if !found {
			return "", nil, 0, false
		}
		text, after, ok := cutValue(after)
		if !ok {
			return "", nil, 0, false
		}
		if len(text) <= maxLabel {
			l[strings.TrimSpace(name)] = text
		}
		if rest, found = strings.CutPrefix(after, ","); found && !strings.HasPrefix(rest, "}") {
			continue
		}
		rest, found = strings.CutPrefix(rest, "}")
		if !found {
			return "", nil, 0, false
		}
		number, _, _ := strings.Cut(strings.TrimSpace(rest), " ") // a time may follow
		value, err := strconv.ParseFloat(number, 64)
		return metric, l, value, err == nil && usable(value)
	}
}

var readMetrics = []string{metricRequests, metricDuration, metricOpened, metricSent, metricReceived}

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")

// cutValue returns a label's value, which ends at the first quote without a backslash.
func cutValue(text string) (value, rest string, ok bool) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			value = text[:i]
			if strings.Contains(value, `\`) {
				value = unescape.Replace(value)
			}
			return value, text[i+1:], true
		}
	}
	return "", "", false
}
