package agent

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/agent/workers"
)

// TestWorkers checks that the report counts all open connections and has each worker's CPU time, and that Istio's
// annotation adds statistics by worker to Prometheus.
func TestWorkers(t *testing.T) {
	app, ip := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") })), ownIP()
	t.Cleanup(app.Close)
	listeners, clusters := httpRoute(t, ip, appPort, app.Listener.Addr())
	ads := startADS(t, listeners, clusters, nil)
	close(ads.open)
	s := startSidecar(t, ip, ads.address, func(c *Config) {
		c.Concurrency = ptr(3)
		c.Workload.Annotations = map[string]string{"sidecar.istio.io/statsInclusionRegexps": `listener\..*\.worker_.*\.downstream_cx_total`}
	})
	s.awaitPid(1)
	const open = 12
	for range open {
		conn, err := net.Dial("tcp", net.JoinHostPort(ip, "18080"))
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
	}
	var r workers.Report
	s.await("all connections to be counted", func() bool {
		status, body := s.get(DefaultStatusPort, "/debug/workers")
		require.Equal(t, http.StatusOK, status, body)
		require.NoError(t, json.Unmarshal([]byte(body), &r))
		var n uint64
		for _, w := range r.Workers {
			n += w.Connections
		}
		return n == open
	})
	require.Len(t, r.Workers, 3)
	require.Equal(t, 3, r.Concurrency)
	require.Equal(t, "--concurrency", r.Because)
	require.Positive(t, r.Over)
	for _, w := range r.Workers {
		require.GreaterOrEqual(t, w.CPU, 0.0, "known on Linux")
	}
	_, metrics := s.get(DefaultPrometheusPort, "/stats/prometheus")
	total := 0
	for range regexp.MustCompile(`(?m)^envoy_listener_worker_\d+_downstream_cx_total\{listener_address="[\d._]+18080"\}`).FindAllString(metrics, -1) {
		total++
	}
	require.Equal(t, 3, total, metrics)
}
