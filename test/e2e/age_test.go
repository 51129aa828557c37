package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/logtext"
)

// TestConnectionAge checks that Envoys and agents reconnect when the control plane ends their connections because of
// their age. Calls continue, changes arrive, and no drain begins.
func TestConnectionAge(t *testing.T) {
	for _, transport := range []server.Transport{server.TransportGRPC, server.TransportHTTP2} {
		t.Run(string(transport), func(t *testing.T) { connectionAge(t, transport) })
	}
}

func connectionAge(t *testing.T, transport server.Transport) {
	m := startMutualWith(t, func(o *controlplane.Options) {
		o.Transport, o.MaxConnectionAge, o.ConnectionGrace = transport, 2*time.Second, 100*time.Millisecond
	})
	m.requireMutual(spiffeID("client"))
	stop, failed := make(chan struct{}), make([]string, 0)
	var calling sync.WaitGroup
	calling.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if status, body := m.call("server", serviceHTTP); status != http.StatusOK {
					failed = append(failed, fmt.Sprint(status, " ", body))
				}
			}
		}
	})
	first := map[string]uint64{}
	for _, p := range m.proxies() {
		first[p.Name] = p.Stream
	}
	eventually(t, "each has come back twice", func() bool {
		for _, p := range m.proxies() {
			if p.Stream < first[p.Name]+4 { // two of each of two proxies
				return false
			}
		}
		return len(m.proxies()) == 2
	}, func() string { return describe(m.proxies()) })
	close(stop)
	calling.Wait()
	require.Empty(t, failed)

	if transport == server.TransportHTTP2 { // grpc-go cuts them
		m.client.requireOrderly(t)
		m.server.requireOrderly(t)
	}

	m.write("mesh.yaml", m.config("server", peerAuthentication("STRICT"))...)
	m.requireStrict()
	m.requireMutual(spiffeID("client"))
	m.requireNothingHeld()
	for _, log := range []*logtext.Buffer{m.client.log, m.server.log} {
		require.NotContains(t, log.String(), "left")
		require.NotContains(t, log.String(), "level=ERROR")
	}
}

// requireOrderly checks that the control plane has ended no connection before the stream on it.
func (w *member) requireOrderly(t *testing.T) {
	t.Helper()
	const ended, broken = "cluster.xds-grpc;.upstream_cx_destroy_remote", "cluster.xds-grpc;.upstream_cx_destroy_remote_with_active_rq"
	stats, err := w.admin.Stats(t.Context(), "^cluster.xds-grpc;.upstream_cx_destroy_remote")
	require.NoError(t, err)
	require.Contains(t, stats, ended)
	require.Contains(t, stats, broken)
	require.Zero(t, stats[broken], "of %d", stats[ended])
}
