package pair_test

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/load"
	"github.com/moonsail/moonsail/internal/lab/pair"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/labtest"
)

func TestMain(m *testing.M) { labtest.Main(m) }

func start(t *testing.T) *pair.Mesh {
	t.Helper()
	var o pair.Options
	o.Programs, o.Envoy = labtest.Sidecars(t)
	m, err := pair.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(m.Stop)
	return m
}

func add(t *testing.T, m *pair.Mesh, s pair.Setup) *pair.Pair {
	t.Helper()
	s.ServerAnnotations = map[string]string{"sidecar.istio.io/statsInclusionRegexps": ".*"}
	p, err := m.Pair(t.Context(), s)
	require.NoError(t, err)
	t.Cleanup(p.Stop)
	return p
}

// stats returns the sum of counters of a sidecar's Envoy.
func stats(t *testing.T, s *pair.Sidecar, filter string) (sum uint64) {
	t.Helper()
	admin := envoy.NewAdmin(s.Admin)
	defer admin.Close()
	all, err := admin.Stats(t.Context(), filter)
	require.NoError(t, err)
	for _, n := range all {
		sum += n
	}
	return sum
}

// balances reports which inbound listeners of a sidecar have exact_balance.
func balances(t *testing.T, s *pair.Sidecar) map[string]bool {
	t.Helper()
	admin := envoy.NewAdmin(s.Admin)
	defer admin.Close()
	text, err := admin.ConfigDump(t.Context(), url.Values{"resource": {"dynamic_listeners"}})
	require.NoError(t, err)
	var dump struct {
		Configs []struct {
			Name   string
			Active struct {
				Listener struct {
					Direction string         `json:"traffic_direction"`
					Balance   map[string]any `json:"connection_balance_config"`
				}
			} `json:"active_state"` // a draining listener has none
		}
	}
	require.NoError(t, json.Unmarshal(text, &dump))
	out := map[string]bool{}
	for _, c := range dump.Configs {
		if c.Active.Listener.Direction == "INBOUND" {
			out[c.Name] = c.Active.Listener.Balance["exact_balance"] != nil
		}
	}
	return out
}

// calls sends requests through a pair and checks the answers. It repeats until each process has CPU time, which the
// kernel counts in units of 10 ms.
func calls(t *testing.T, p *pair.Pair) {
	t.Helper()
	before, err := p.Usage()
	require.NoError(t, err)
	want, got := []bool{true, p.Setup.Client, p.Setup.Server}, []bool(nil)
	for range 20 {
		r, err := p.Load(t.Context(), load.Options{Connections: 4, Rate: 200, Duration: 500 * time.Millisecond})
		require.NoError(t, err)
		require.Positive(t, r.Requests)
		require.LessOrEqual(t, r.Requests, int64(100), "those that were not sent in time are left out")
		require.Zero(t, r.Failed)
		require.Positive(t, r.CPU)
		after, err := p.Usage()
		require.NoError(t, err)
		used := after.Since(before)
		if got = []bool{used.Backend > 0, used.Client > 0, used.Server > 0}; slices.Equal(want, got) {
			return
		}
	}
	require.Equal(t, want, got)
}

const (
	inbound1 = `^http\.inbound_.*_18080.*downstream_cx_http1_total$`
	inbound2 = `^http\.inbound_.*_18080.*downstream_cx_http2_total$`
	tls      = `^listener\..*_18080\.ssl\.handshake$`
)

// TestPairs checks that requests pass through the sidecars of the setup, and that nothing is left over.
func TestPairs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	m := start(t)
	none := add(t, m, pair.Setup{})
	calls(t, none)
	require.Empty(t, none.Sidecars())

	server := add(t, m, pair.Setup{Server: true, Concurrency: 1})
	calls(t, server)

	both := add(t, m, pair.Setup{Client: true, Server: true, MTLS: true, Concurrency: 2})
	calls(t, both)
	require.Len(t, both.Sidecars(), 2)
	require.Positive(t, stats(t, both.Server, tls), "it is mutual TLS")
	require.Positive(t, stats(t, both.Server, inbound2), "HTTP/2 is spoken between them")
	require.Zero(t, stats(t, both.Server, inbound1))
	require.EqualValues(t, 2, stats(t, both.Server, `^server\.concurrency$`))

	require.Equal(t, map[string]bool{both.Server.IP + "_18080": true}, balances(t, both.Server))

	plain := add(t, m, pair.Setup{Client: true, Server: true, Concurrency: 1})
	calls(t, plain)
	require.Zero(t, stats(t, plain.Server, tls))
	require.Equal(t, map[string]bool{plain.Server.IP + "_18080": false}, balances(t, plain.Server), "there is one worker")

	old := add(t, m, pair.Setup{Client: true, Server: true, MTLS: true, HTTP1: true, AnyWorker: true, Concurrency: 2})
	calls(t, old)
	require.Positive(t, stats(t, old.Server, inbound1))
	require.Zero(t, stats(t, old.Server, inbound2))
	require.Equal(t, map[string]bool{old.Server.IP + "_18080": false}, balances(t, old.Server))

	for _, p := range []*pair.Pair{server, both, plain, old} {
		p.Stop()
	}
	m.Stop()
	require.Empty(t, labtest.LeftOver(t))
}

// TestPaused checks that the Envoys of a paused pair take no CPU time and do not answer, and that they answer after
// they are resumed.
func TestPaused(t *testing.T) {
	m := start(t)
	s := &pair.Subject{Pair: add(t, m, pair.Setup{Client: true, Server: true, MTLS: true, Concurrency: 1})}
	require.NoError(t, s.Pause())
	silent := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, s.Resumed(ctx), context.DeadlineExceeded)
	}
	took := func() time.Duration {
		before, err := s.Usage()
		require.NoError(t, err)
		silent()
		after, err := s.Usage()
		require.NoError(t, err)
		return after.Since(before).Envoys()
	}
	for end := time.Now().Add(time.Minute); took() > 0; { // until the last of their threads has stopped
		require.True(t, time.Now().Before(end), "they do not stop")
	}
	require.NoError(t, s.Resume(t.Context()))
	require.NoError(t, s.Resumed(t.Context()))
}

// TestInterrupted checks that a pair whose context ends is not created, and leaves no process.
func TestInterrupted(t *testing.T) {
	m := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := m.Pair(ctx, pair.Setup{Client: true, Server: true, Concurrency: 1})
	require.ErrorIs(t, err, context.Canceled)
}
