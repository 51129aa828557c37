package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/callstats"
)

// TestSeriesAreBounded checks the limit of metric series when a caller claims ever new workload names. Existing series
// must continue, series of the server's own calls must be added as before, and the sidecar must log it.
func TestSeriesAreBounded(t *testing.T) {
	const bound, names = 2000, 2200
	m := startMutual(t, peerAuthentication("STRICT"))
	call := func() {
		m.requireStatus(http.StatusOK, "the client's call is answered", func() (int, string) { return m.call("server", serviceHTTP) })
	}
	known := map[string]string{"source_workload": "client", "response_code": "200"}
	call()
	eventually(t, "the call is counted", func() bool { return m.server.sample(t, "istio_requests_total", known) > 0 }, nil)
	before := m.server.sample(t, "istio_requests_total", known)

	m.callAsMany(t, names)
	m.server.requireSample(t, "moonsail_agent_call_series", map[string]string{"reporter": "destination"}, bound)
	require.Positive(t, m.server.sample(t, "envoy_server_stats_overflow_counter", nil))
	require.Contains(t, m.server.log.String(), "almost reached its limit of series for calls")

	call()
	m.server.requireSample(t, "istio_requests_total", known, before+1)
	status, _ := m.get1(fmt.Sprintf("http://%s:%d/", m.server.ip, serviceHTTP), "plain")
	require.Equal(t, http.StatusOK, status)
	m.server.requireSample(t, "istio_requests_total", map[string]string{"reporter": "source", "destination_service_name": "plain"}, 1)
}

// callAsMany makes requests with a certificate of the mesh on one connection, each with the name of another workload.
func (m *mutual) callAsMany(t *testing.T, n int) {
	t.Helper()
	transport := &http.Transport{MaxConnsPerHost: 1, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the server is not under test
		Certificates:       []tls.Certificate{*m.pair(m.root, spiffeID("client"))},
	}}
	defer transport.CloseIdleConnections()
	for i := range n {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://%s:%d/", m.server.ip, memberHTTP), http.NoBody)
		require.NoError(t, err)
		req.Header.Set(callstats.PeerHeader, fmt.Sprintf("w%d;shop;w;v1;Kubernetes", i))
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
}
