package envoy

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/netns"
)

func TestMain(m *testing.M) {
	netns.Isolate()
	goleak.VerifyTestMain(m)
}

const patience = time.Minute

// startEnvoy runs the pinned Envoy with an admin interface and nothing else.
func startEnvoy(t *testing.T, adminAddress string) *Process {
	t.Helper()
	found, err := Find("")
	require.NoError(t, err)
	bootstrap := filepath.Join(t.TempDir(), "bootstrap.json")
	require.NoError(t, os.WriteFile(bootstrap, []byte(`{"admin": {"address": `+adminAddress+`}}`), 0o600))
	var output bytes.Buffer
	p, err := Start(Options{Path: found.Path, Bootstrap: bootstrap, Concurrency: 1, LogLevel: "warning",
		DrainTime: time.Second, Output: &output})
	require.NoError(t, err)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("Envoy:\n%s", output.String())
		}
	})
	return p
}

func awaitReady(t *testing.T, a *Admin) {
	t.Helper()
	require.Eventually(t, func() bool { return a.Ready(t.Context()) == nil }, patience, 10*time.Millisecond)
}

func TestAdminOverUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "admin") // t.TempDir may be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "admin.sock")
	p := startEnvoy(t, `{"pipe": {"path": "`+socket+`"}}`)
	a := NewAdmin("unix://" + socket)
	defer a.Close()
	awaitReady(t, a)
	ctx := t.Context()

	info, err := a.ServerInfo(ctx)
	require.NoError(t, err)
	require.Equal(t, "LIVE", info.State)
	require.Equal(t, 1, info.CommandLine.Concurrency)
	require.Contains(t, info.Version, "/"+Version+"/")

	stats, err := a.Stats(ctx, `^server\.(live|state)$`)
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{"server.live": 1, "server.state": 0}, stats)
	all, err := a.Stats(ctx, "")
	require.NoError(t, err)
	require.Greater(t, len(all), len(stats))

	var text bytes.Buffer
	require.NoError(t, a.Prometheus(ctx, "filter=server.live", &text))
	require.Contains(t, text.String(), "envoy_server_live{} 1")
	clusters, err := a.Clusters(ctx)
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(clusters))
	dump, err := a.ConfigDump(ctx, nil)
	require.NoError(t, err)
	require.Contains(t, string(dump), "BootstrapConfigDump")
	levels, err := a.Logging(ctx, url.Values{"paths": {"rbac:trace"}})
	require.NoError(t, err)
	require.Equal(t, "trace", levels["rbac"])
	require.Equal(t, "warning", levels["admin"])
	levels, err = a.Logging(ctx, url.Values{"level": {"error"}})
	require.NoError(t, err)
	require.Equal(t, "error", levels["rbac"])
	_, err = a.Logging(ctx, url.Values{"paths": {"nonsense:trace"}})
	require.Error(t, err)

	require.NoError(t, a.DrainListeners(ctx, false))
	require.NoError(t, a.FailHealthCheck(ctx))
	info, err = a.ServerInfo(ctx)
	require.NoError(t, err)
	require.Equal(t, "DRAINING", info.State)
	require.ErrorContains(t, a.Ready(ctx), "DRAINING")

	require.NoError(t, a.Quit(ctx))
	await.From(t, p.Done())
	require.NoError(t, p.Err())
	require.NoError(t, p.Signal(os.Interrupt), "signals to an ended process are no error")
}

func TestAdminErrors(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			http.Error(w, "no such thing\nmore", http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte("<html>"))
	}))
	defer server.Close()
	a := NewAdmin(server.Listener.Addr().String())
	defer a.Close()
	require.EqualError(t, a.FailHealthCheck(t.Context()),
		"admin interface of Envoy, POST /healthcheck/fail: 404 Not Found: no such thing")
	_, err := a.Stats(t.Context(), "x")
	require.ErrorContains(t, err, "unexpected JSON")
	require.ErrorContains(t, err, "<html>")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	gone := NewAdmin(l.Addr().String())
	defer gone.Close()
	require.ErrorContains(t, gone.Ready(context.Background()), "admin interface of Envoy")
}

func TestDecodeStats(t *testing.T) {
	got, err := decodeStats([]byte(`{"stats":[{"name":"a","value":18446744073709551615},{"name":"text","value":"v"},
		{"histograms":{"supported_quantiles":[]}},{"name":"zero","value":0}]}`))
	require.NoError(t, err)
	require.Equal(t, map[string]uint64{"a": 1<<64 - 1, "zero": 0}, got)
}
