package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestWorkersHaveTheirOwnPools checks that, with a limit of one connection, each worker opens one, since its pool has
// none, and no more. 'why' states the same.
func TestWorkersHaveTheirOwnPools(t *testing.T) {
	const workers, calls = 2, 24 // the kernel spreads them over the workers by a hash
	pool := startBackend(t, "pool", "v1")
	c := newClient("caller")
	c.workers = workers
	m := startMesh(t, server.RoutesAuto, c.sidecar("./*"), service("pool", &pool.app), policy("pool", "{connectionPool: {tcp: {maxConnections: 1}}}"))
	c.start(t, m, false)

	var calling sync.WaitGroup
	for range calls {
		calling.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url(), http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			req.Host, req.Close = "pool", true
			req.Header.Set("X-Hang", "yes")
			resp, err := (&http.Client{Timeout: 2 * patience}).Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
		})
	}
	pending := func() uint64 { return only(c.stats(t, `^cluster\.outbound\|.*pool.*upstream_rq_pending_active$`)) }
	eventually(t, "one call a worker is on its way, and all others wait", func() bool {
		return pending() == calls-workers && pool.connectionCount() == workers
	}, func() string {
		return fmt.Sprint(pending(), " pending, ", pool.connectionCount(), " connections")
	})
	close(pool.release)
	calling.Wait()
	require.Len(t, pool.requests(), calls)
}
