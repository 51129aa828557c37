package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/cli"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/kubetest"
)

// ask runs a command line and returns its exit status and output.
func ask(t *testing.T, args ...string) (status int, out string) {
	t.Helper()
	return askUntil(t.Context(), args...)
}

// askUntil is ask for a command that ends with ctx.
func askUntil(ctx context.Context, args ...string) (status int, out string) {
	var written bytes.Buffer
	root := cli.NewRootCommand()
	root.SetOut(&written)
	root.SetErr(&written)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var exit terminal.ExitCode
	switch {
	case errors.As(err, &exit):
		return int(exit), written.String()
	case err != nil:
		return 1, written.String() + err.Error()
	}
	return 0, written.String()
}

// version returns the version of a resource that the proxy has ACKed.
func (p *proxy) version(t resource.Type, name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[t][name]
}

// TestWaitForAppliedFile checks that "moonsail wait" recognizes an applied file in what the API server makes of it,
// and ends when all proxies have it. While the API server is paused, it must report that the change was not seen.
func TestWaitForAppliedFile(t *testing.T) {
	c := kubetest.Alone(t)
	ns := c.Namespace(t)
	xds, url := serve(t, c)
	require.Eventually(t, func() bool { return ready(t, url) }, time.Minute, 10*time.Millisecond)
	p := connect(t, xds, ns)
	path := filepath.Join(t.TempDir(), "shop.yaml")
	apply := func(connections int) {
		text := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: %[1]s}
spec: {selector: {app: reviews}, ports: [{name: http, port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: reviews, namespace: %[1]s}
spec: {host: reviews, trafficPolicy: {connectionPool: {tcp: {maxConnections: %[2]d}}}}
`, ns, connections)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		c.Apply(t, ns, text)
	}
	versions := map[string]bool{}
	for i := range 3 {
		apply(i + 1)
		status, out := ask(t, "wait", path, "--timeout", "1m", "--address", url)
		require.Zero(t, status, out)
		require.Contains(t, out, "Service/"+ns+"/reviews: distributed to 1 of 1 proxies (100 %)")
		require.Contains(t, out, "DestinationRule/"+ns+"/reviews: distributed to 1 of 1 proxies (100 %)")
		versions[p.version(resource.Cluster, "outbound|80||reviews."+ns+".svc.cluster.local")] = true
		require.Len(t, versions, i+1, "the proxy has it when the wait ends")
	}

	// A paused API server sends no events, so the change cannot be seen.
	c.Pause(t)
	defer c.Resume(t)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.ReplaceAll(text, []byte("maxConnections: 3"), []byte("maxConnections: 4")), 0o600))
	status, out := ask(t, "wait", path, "--timeout", "2s", "--address", url)
	require.Equal(t, 3, status, out)
	require.Contains(t, out, "the control plane has another version of it")
}
