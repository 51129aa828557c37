package e2e

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
)

// observed is the mesh's configuration, and Telemetry objects, of TestTelemetry.
func observed(logs string, c *collector) []string {
	return []string{c.document(), fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: |
    defaultProviders: {metrics: [prometheus], accessLogging: [everywhere]}
    extensionProviders:
    - {name: everywhere, envoyFileAccessLog: {path: %[1]s/everywhere, logFormat: {text: "%%PROTOCOL%%\n"}}}
    - {name: here, envoyFileAccessLog: {path: %[1]s/here, logFormat: {text: "%%REQ(:METHOD)%% %%RESPONSE_CODE%% %%BYTES_SENT%%\n"}}}
    - {name: requests, envoyHttpAls: {service: collector.example.com, port: 4317, logName: calls, additionalRequestHeadersToLog: [x-user]}}
    - {name: connections, envoyTcpAls: {service: collector.example.com, port: 4317}}
    - {name: spans, opentelemetry: {service: collector.example.com, port: 4317}}`, logs), `apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: shop, namespace: shop}
spec:
  metrics:
  - providers: [{name: prometheus}]
    overrides:
    - match: {metric: REQUEST_COUNT, mode: CLIENT}
      tagOverrides:
        request_method: {value: request.method}
        response_flags: {operation: REMOVE}
  accessLogging:
  - providers: [{name: here}, {name: requests}, {name: connections}]
  tracing:
  - {providers: [{name: spans}]}`}
}

// TestTelemetry checks what two sidecars report about one request and one connection: metrics with the names of both
// workloads, logs for the workloads that a Telemetry selects and no others, and spans that are parent and child.
func TestTelemetry(t *testing.T) {
	c, logs := startCollector(t), shortDir(t)
	m := startMutual(t, observed(logs, c)...)
	trace, parent := m.callOnce(t)
	require.Equal(t, "welcome\n", m.line(m.client.ip, serviceTCP))

	t.Run("metrics", m.requireMetrics)
	t.Run("logs", func(t *testing.T) { requireLogs(t, logs, c) })
	t.Run("spans", func(t *testing.T) { m.requireSpans(t, c, trace, parent) })
	m.requireNothingHeld()
}

// callOnce makes one request with a body of five bytes, as part of a trace.
func (m *mutual) callOnce(t *testing.T) (trace, parent []byte) {
	t.Helper()
	const traceID, parentID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("http://%s:%d/", m.client.ip, serviceHTTP), strings.NewReader("hello"))
	require.NoError(t, err)
	req.Host, req.Close = "server", true
	req.Header.Set("traceparent", "00-"+traceID+"-"+parentID+"-01")
	req.Header.Set("x-user", "jason")
	resp, err := (&http.Client{Timeout: callLimit}).Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "200 server-v1", fmt.Sprint(resp.StatusCode, " ", string(body)))
	trace, err = hex.DecodeString(traceID)
	require.NoError(t, err)
	parent, err = hex.DecodeString(parentID)
	require.NoError(t, err)
	return trace, parent
}

// requireMetrics waits until each of Istio's standard metrics counts one call on each side.
func (m *mutual) requireMetrics(t *testing.T) {
	for _, side := range []struct {
		of       *member
		reporter string
	}{{m.client, "source"}, {m.server, "destination"}} {
		request := map[string]string{
			"reporter": side.reporter, "source_workload": "client", "source_workload_namespace": "shop",
			"destination_workload": "server", "destination_workload_namespace": "shop",
			"source_principal": spiffeID("client"), "destination_principal": spiffeID("server"),
			"destination_service": "server.shop.svc.cluster.local", "destination_service_name": "server",
			"request_protocol": "http", "response_code": "200",
		}
		connection := map[string]string{
			"reporter": side.reporter, "source_principal": spiffeID("client"),
			"destination_workload": "server", "destination_principal": spiffeID("server"),
			"destination_service_name": "server", "request_protocol": "tcp",
		}
		if side.of == m.client {
			connection["source_workload"] = "client"
		}
		for _, want := range []struct {
			metric string
			labels map[string]string
			value  float64
		}{
			{"istio_requests_total", request, 1},
			{"istio_request_duration_milliseconds_count", request, 1},
			{"istio_request_bytes_count", request, 1},
			{"istio_response_bytes_count", request, 1},
			{"istio_tcp_connections_opened_total", connection, 1},
			{"istio_tcp_connections_closed_total", connection, 1},
			{"istio_tcp_sent_bytes_total", connection, float64(len("welcome\n"))},
			{"istio_tcp_received_bytes_total", connection, float64(len("hello\n"))},
		} {
			side.of.requireSample(t, want.metric, want.labels, want.value)
		}
		// Envoy's histograms keep two significant digits.
		require.InEpsilon(t, len("hello"), side.of.sample(t, "istio_request_bytes_sum", request), 0.1)
		require.InEpsilon(t, len("server-v1"), side.of.sample(t, "istio_response_bytes_sum", request), 0.1)
	}
	require.Equal(t, 1., m.client.sample(t, "istio_requests_total", map[string]string{"request_method": "POST"}))
	require.Equal(t, 1., m.server.sample(t, "istio_requests_total", map[string]string{"response_flags": "-"}))
	require.Zero(t, m.server.sample(t, "istio_requests_total", map[string]string{"request_method": "POST"}), "the override is of clients")
	require.Zero(t, m.client.sample(t, "istio_requests_total", map[string]string{"response_flags": "-"}), "the label is removed")
}

// requireSample waits until samples with some labels have a value: Envoy's workers report with a short delay.
func (w *member) requireSample(t *testing.T, metric string, labels map[string]string, want float64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s's %s is %g", w.name, metric, want), func() bool { return w.sample(t, metric, labels) == want },
		func() string { return strings.Join(lines(w.metrics(t), metric), "\n") })
}

// sample returns the sum of a metric's samples with some labels, as the member's agent serves them.
func (w *member) sample(t *testing.T, metric string, labels map[string]string) float64 {
	t.Helper()
	var wanted []*regexp.Regexp
	for name, value := range labels {
		wanted = append(wanted, regexp.MustCompile(`(^|,)`+name+`="`+regexp.QuoteMeta(value)+`"`))
	}
	sum := 0.
	for line := range strings.Lines(w.metrics(t)) {
		text, ok := strings.CutPrefix(strings.TrimSpace(line), metric+"{")
		if !ok || slices.ContainsFunc(wanted, func(label *regexp.Regexp) bool { return !label.MatchString(text) }) {
			continue
		}
		n, err := strconv.ParseFloat(text[strings.LastIndexByte(text, ' ')+1:], 64)
		require.NoError(t, err, line)
		sum += n
	}
	return sum
}

// metrics returns what Prometheus gets from a member.
func (w *member) metrics(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.ip+":15020/stats/prometheus", http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}

// requireLogs waits for what both sidecars log about the request and the connection.
func requireLogs(t *testing.T, dir string, c *collector) {
	t.Helper()
	const want = "POST 200 9\n"
	text := ""
	eventually(t, "the file has the request twice", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "here"))
		text = string(b)
		return err == nil && strings.Count(text, want) == 2
	}, func() string { return text })
	eventually(t, "the service has both sides' entries", func() bool {
		requests, connections := c.logged()
		return len(requests) == 2 && len(connections) == 2
	}, func() string { requests, connections := c.logged(); return fmt.Sprint(requests, connections) })
	requests, connections := c.logged()
	for _, e := range requests {
		require.EqualValues(t, http.StatusOK, e.Response.ResponseCode.Value)
		require.Equal(t, "jason", e.Request.RequestHeaders["x-user"])
		require.EqualValues(t, len("hello"), e.Request.RequestBodyBytes)
	}
	for _, e := range connections {
		require.EqualValues(t, len("welcome\n"), e.ConnectionProperties.SentBytes)
		require.EqualValues(t, len("hello\n"), e.ConnectionProperties.ReceivedBytes)
	}
	b, err := os.ReadFile(filepath.Join(dir, "everywhere"))
	require.True(t, err != nil || len(b) == 0, "the Telemetry names other providers than the mesh: %s", b)
}

// requireSpans waits for both sidecars' spans: the client's is the caller's child, and the server's is the client's
// child. The application receives the server's.
func (m *mutual) requireSpans(t *testing.T, c *collector, trace, parent []byte) {
	t.Helper()
	for _, service := range []string{"client.shop", "server.shop"} {
		eventually(t, "the span of "+service, func() bool { return c.span(trace, service) != nil },
			func() string { c.mu.Lock(); defer c.mu.Unlock(); return fmt.Sprint(c.spans) })
	}
	client, server := c.span(trace, "client.shop"), c.span(trace, "server.shop")
	require.Equal(t, parent, client.ParentSpanId)
	require.Equal(t, client.SpanId, server.ParentSpanId)
	require.Equal(t, fmt.Sprintf("00-%x-%x-01", trace, server.SpanId), m.server.backend.last(t).header.Get("traceparent"))
	require.NotZero(t, client.EndTimeUnixNano)
	require.True(t, tagged(client), "the client's Pod has a tag")
	require.False(t, tagged(server))
}

// ownTracing is the annotation of the client's Pod: all traces are sampled, with a tag.
const ownTracing = "tracing: {sampling: 100, customTags: {set-by: {literal: {value: the Pod}}}}"

func tagged(s *tracev1.Span) bool {
	return slices.ContainsFunc(s.Attributes, func(a *commonv1.KeyValue) bool { return a.Key == "set-by" && a.Value.GetStringValue() == "the Pod" })
}
