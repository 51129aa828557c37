package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/kubetest"
)

var samples = flag.String("samples", "", "folder samples of Istio's repository, which this one has no copy of")

// TestIstioSamples gives the API server Istio's own samples, and a real Envoy as productpage's
// sidecar what comes of them: file by file, each must reach it without a refusal.
func TestIstioSamples(t *testing.T) {
	if *samples == "" {
		t.Skip("name the samples of a checkout of Istio: go test ./test/cluster -run TestIstioSamples -samples=istio/samples")
	}
	c := kubetest.Start(t)
	ns := c.Namespace(t)
	c.Apply(t, "", `{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}`) // of a Gateway
	xds, url := serve(t, c)
	require.Eventually(t, func() bool { return ready(t, url) }, time.Minute, 10*time.Millisecond)
	s := trialOfSamples{t: t, c: c, ns: ns, url: url}
	s.sidecar(xds)
	for _, f := range []string{"bookinfo/platform/kube/bookinfo.yaml", "bookinfo/platform/kube/bookinfo-versions.yaml", "helloworld/helloworld.yaml",
		"httpbin/httpbin.yaml", "curl/curl.yaml", "bookinfo/networking/destination-rule-all.yaml"} {
		s.serve(filepath.Join(*samples, f))
	}
	files, err := filepath.Glob(filepath.Join(*samples, "bookinfo", "networking", "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	gateways, err := filepath.Glob(filepath.Join(*samples, "*", "*gateway.yaml"))
	require.NoError(t, err)
	for _, f := range append(files, gateways...) {
		s.serve(f)
	}
}

type trialOfSamples struct {
	t       *testing.T
	c       *kubetest.Cluster
	ns, url string
}

// sidecar runs a sidecar, as productpage's, until the test ends.
func (s *trialOfSamples) sidecar(xds string) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		status, out := askUntil(ctx, "agent", "--name", "productpage-v1-0", "--namespace", s.ns, "--ip", "127.77.0.1", "--labels", "app=productpage,version=v1",
			"--xds-address", xds, "--drain-time", "1ms", "--leave-timeout", "0", "--concurrency", "1")
		s.t.Log("sidecar:", status, out)
	})
	s.t.Cleanup(func() { cancel(); running.Wait() })
	s.c.Eventually(s.t, "the sidecar is connected", func(ctx context.Context) error {
		_, out := askUntil(ctx, "proxies", "--address", s.url)
		if !strings.Contains(out, "SYNCED") {
			return errors.New(out)
		}
		return nil
	})
}

// serve applies a file and waits until the sidecar has it.
func (s *trialOfSamples) serve(file string) {
	text, err := os.ReadFile(file)
	require.NoError(s.t, err)
	s.c.Apply(s.t, s.ns, string(text))
	status, out := ask(s.t, "wait", s.placed(string(text)), "--timeout", "30s", "--address", s.url)
	s.t.Logf("%s: %s", strings.TrimPrefix(file, *samples), out)
	require.Zero(s.t, status, file)
	_, out = ask(s.t, "proxies", "--address", s.url)
	require.Contains(s.t, out, "SYNCED", file)
	require.NotContains(s.t, out, "NACK", file)
}

// placed is a file with these objects in the namespace: samples name none.
func (s *trialOfSamples) placed(text string) string {
	path := filepath.Join(s.t.TempDir(), "sample.yaml")
	docs := strings.Split("\n"+text, "\n---")
	for i, d := range docs {
		if !strings.Contains(d, "\n  namespace: ") {
			docs[i] = strings.ReplaceAll(d, "\nmetadata:\n", fmt.Sprintf("\nmetadata:\n  namespace: %s\n", s.ns))
		}
	}
	text = strings.Join(docs, "\n---")
	require.NoError(s.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
