package identity

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/base/atomicfile"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func root(t *testing.T, name string) *catest.Root {
	t.Helper()
	r, err := catest.NewRoot(name)
	require.NoError(t, err)
	return r
}

// authority starts a CA with one root and the token of one workload.
func authority(t *testing.T, r *catest.Root) *catest.Server {
	t.Helper()
	server, stop, err := catest.Start("127.0.0.1:0", catest.Settings{
		Signer: r, Roots: []*catest.Root{r}, IDs: map[string]string{"Bearer web-token": shopWeb}, Life: time.Hour,
	})
	require.NoError(t, err)
	t.Cleanup(stop)
	return server
}

// options are those of a workload of the authority, with a folder of its own.
func options(t *testing.T, server *catest.Server, r *catest.Root) Options {
	t.Helper()
	dir := t.TempDir()
	o := Options{
		Namespace: "shop", ServiceAccount: "web", TrustDomain: "mesh.test", Address: server.Address,
		ServerNames: []string{catest.ControlPlaneName}, TokenFile: filepath.Join(dir, "token"), RootsFile: filepath.Join(dir, "roots"),
		Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler), poll: time.Millisecond, spread: time.Millisecond,
	}
	write(t, o.TokenFile, "web-token\n")
	write(t, o.RootsFile, string(r.PEM()))
	return o
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, atomicfile.Write(path, []byte(content)))
}

func run(t *testing.T, o Options) *Renewer {
	t.Helper()
	renewer, err := New(o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		renewer.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return renewer
}

// await waits until the secrets satisfy ok.
func await(t *testing.T, renewer *Renewer, what string, ok func(*Secrets) bool) *Secrets {
	t.Helper()
	end := time.After(patience)
	for {
		s, changed := renewer.Secrets()
		if ok(s) {
			return s
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("waiting for %s: %+v", what, renewer.State())
		}
	}
}

func issued(s *Secrets) bool { return s.Leaf() != nil }
