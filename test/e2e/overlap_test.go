package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestFormsOverlap lets a mesh cross each size at which the listener of a route configuration
// is replaced, up and down, under traffic. Connections of before stay with the listener that
// drains, and their calls go on, by the routes as they are: none fails.
func TestFormsOverlap(t *testing.T) {
	t.Parallel()
	c := newClient("client")
	c.drain = time.Hour // whatever is left alone stays
	_, size := growing(t, c)
	const from = 8
	m := startMeshSplit(t, server.RoutesScoped, from, size(from-1)...)
	c.start(t, m, false)
	calls := startTraffic(t, c, "web")
	before := from - 1
	for _, n := range []int{from, from - 1, from, 8*from - 1, 8 * from, 8*from - 1, from} {
		t.Run(fmt.Sprintf("%d to %d", before, n), func(t *testing.T) {
			held := holdConnections(t, c, "web")
			draining := chainsDraining(t, c)
			m.apply(size(n)...)
			if crosses := (before < from) != (n < from) || (before < 8*from) != (n < 8*from); crosses {
				require.Greater(t, chainsDraining(t, c), draining, "its listener was replaced")
			}
			held.await("web-v1")
			m.apply(size(n, routes("web", to("other")))...)
			calls.requireOnly("other-v1")
			held.await("other-v1")
			m.apply(size(n)...)
			calls.requireOnly("web-v1")
			held.await("web-v1")
		})
		before = n
	}
	noRefusals(t, m, c)
}

// chainsDraining is the number of filter chains that have been replaced, and have connections still.
func chainsDraining(t *testing.T, c *client) uint64 {
	t.Helper()
	stats, err := c.admin.Stats(t.Context(), `listener_manager\.total_(filter_chains|listeners)_draining$`)
	require.NoError(t, err)
	return stats["listener_manager.total_filter_chains_draining"] + stats["listener_manager.total_listeners_draining"]
}

// heldConnections were made before something happened. Envoy asks for the end of one whose
// listener drains with the next answer on it, so that each is good for one call.
type heldConnections struct {
	t     *testing.T
	url   string
	host  string
	conns []*http.Client
}

func holdConnections(t *testing.T, c *client, host string) *heldConnections {
	t.Helper()
	h := &heldConnections{t: t, url: c.url(), host: host}
	for range 12 {
		conn := &http.Client{Timeout: callLimit, Transport: &http.Transport{}}
		t.Cleanup(conn.CloseIdleConnections)
		_, err := get(conn, h.url, host, false)
		require.NoError(t, err)
		h.conns = append(h.conns, conn)
	}
	return h
}

// await makes calls until one is answered by who: Envoy's workers have what it ACKed a moment
// later. None may fail.
func (h *heldConnections) await(who string) {
	h.t.Helper()
	eventually(h.t, "calls on held connections go to "+who, func() bool { return h.call() == who }, nil)
}

// call makes a call on the next connection.
func (h *heldConnections) call() string {
	h.t.Helper()
	require.NotEmpty(h.t, h.conns, "connections of before")
	reused := false
	ctx := httptrace.WithClientTrace(h.t.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
	})
	body, err := getWith(ctx, h.conns[0], h.url, h.host, false)
	require.NoError(h.t, err)
	require.True(h.t, reused, "the connection of before")
	h.conns = h.conns[1:]
	return body
}
