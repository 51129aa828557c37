package agent

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/test/bufconn"

	"github.com/moonsail/moonsail/internal/sidecar/agent/scrape"
)

func TestMergesTheApplicationsMetrics(t *testing.T) {
	ads := startADS(t, nil, nil, nil)
	close(ads.open)
	ip := ownIP()
	var fails atomic.Bool
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	require.NoError(t, err)
	app := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fails.Load() || r.URL.Path != "/custom" || r.Header.Get("Accept") != "text/plain;version=0.0.4" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "orders_total 7\n# EOF\n")
	})}}
	app.Start()
	t.Cleanup(app.Close)
	s := startSidecar(t, ip, ads.address, func(c *Config) {
		c.AppMetrics = []scrape.App{{Port: uint16(l.Addr().(*net.TCPAddr).Port), Path: "/custom"}}
	})
	s.awaitReady()
	_, merged := s.get(DefaultStatusPort, "/stats/prometheus")
	require.Contains(t, merged, "\norders_total 7\n")
	require.Contains(t, merged, "envoy_server_live{} 1\n")
	require.Contains(t, merged, "istio_agent_scrapes_total 1\n")
	require.NotContains(t, merged, "# EOF")

	fails.Store(true)
	_, merged = s.get(DefaultStatusPort, "/stats/prometheus")
	require.NotContains(t, merged, "orders_total")
	require.Contains(t, merged, "envoy_server_live{} 1\n", "the other metrics remain")
	_, merged = s.get(DefaultStatusPort, "/stats/prometheus")
	require.Contains(t, merged, `istio_agent_scrape_failures_total{type="application"} 2`)
}

// TestIdleConnectionsEnd checks that the status ports close idle connections, which would use up file descriptors.
func TestIdleConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := bufconn.Listen(1 << 16)
		server := newStatusServer(http.NotFoundHandler())
		require.NotZero(t, server.WriteTimeout, "for clients that do not read")
		go func() { _ = server.Serve(ln) }()
		defer func() { _ = server.Close() }()
		for _, request := range []string{"", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"} {
			c, err := ln.DialContext(t.Context())
			require.NoError(t, err)
			_, err = io.WriteString(c, request)
			require.NoError(t, err)
			r := bufio.NewReader(c)
			if request != "" {
				res, err := http.ReadResponse(r, nil)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, res.Body)
				require.NoError(t, res.Body.Close())
				require.NoError(t, err)
			}
			_, err = r.ReadByte()
			require.ErrorIs(t, err, io.EOF)
			require.NoError(t, c.Close())
		}
	})
}
