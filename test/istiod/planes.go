package istiod

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/xds/fetch"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/kubetest"
)

// plane is a running control plane.
type plane struct {
	name   string
	client *fetch.Client
	secure string // address with TLS
}

func dial(t *testing.T, name, addr string) *plane {
	t.Helper()
	c, err := fetch.Connect(fetch.Options{Address: addr})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return &plane{name: name, client: c}
}

// startMoonsail runs Moonsail's control plane in this process. It writes no statuses and deploys no Gateways: istiod does.
func startMoonsail(t *testing.T, c *kubetest.Cluster) *plane {
	t.Helper()
	addr, ended := make(chan string, 1), make(chan error, 1)
	o := controlplane.Options{
		Kubernetes: &kube.Cluster{Kubeconfig: c.Kubeconfig()}, XDSPlaintextAddr: "127.0.0.1:0", Mesh: model.DefaultMesh(),
		Log: slog.New(slog.DiscardHandler), Listening: func(xds, _ net.Addr) { addr <- xds.String() },
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- controlplane.Run(ctx, o) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, await.From(t, ended))
	})
	select {
	case a := <-addr:
		return dial(t, "moonsail", a)
	case err := <-ended:
		require.NoError(t, err)
	}
	return nil
}

// istiodEnv are istiod's settings: no credentials are asked for, it batches briefly, and it serves both IP families as Moonsail
// always does.
var istiodEnv = []string{
	"XDS_AUTH=false", "POD_NAMESPACE=istio-system", "POD_NAME=istiod-compare", "PILOT_ENABLE_ANALYSIS=false",
	"INJECTION_WEBHOOK_CONFIG_NAME=", "VALIDATION_WEBHOOK_CONFIG_NAME=", "PILOT_DEBOUNCE_AFTER=10ms", "PILOT_DEBOUNCE_MAX=100ms",
	"PILOT_MAX_REQUESTS_PER_SECOND=10000", "PILOT_PUSH_THROTTLE=100", "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER=false",
	"ENABLE_TLS_ON_SIDECAR_INGRESS=true", "ISTIO_DUAL_STACK=true",
}

// startIstiod runs the istiod binary at path.
func startIstiod(t *testing.T, c *kubetest.Cluster, path string) *plane {
	return startIstiodWith(t, c, path, nil)
}

// startIstiodWith adds to its environment.
func startIstiodWith(t *testing.T, c *kubetest.Cluster, path string, env []string) *plane {
	t.Helper()
	ports := freePorts(t, 5)
	at := func(i int) string { return "127.0.0.1:" + ports[i] }
	var out bytes.Buffer
	cmd := exec.Command(path, "discovery", "--kubeconfig", c.Kubeconfig(), "--grpcAddr", at(0), "--httpAddr", at(1), "--monitoringAddr", at(2),
		"--secureGRPCAddr", at(3), "--httpsAddr", at(4))
	cmd.Env = slices.Concat(os.Environ(), istiodEnv, []string{"KUBECONFIG_OF_NAMESPACE=" + c.Kubeconfig()}, env)
	cmd.Dir = t.TempDir()
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		await.From(t, ended) //nolint:errcheck // it was killed
		if t.Failed() {
			name := filepath.Join(os.TempDir(), "istiod-compare.log")
			if os.WriteFile(name, out.Bytes(), 0o600) == nil {
				t.Logf("istiod's log is in %s", name)
			}
		}
	})
	for end := time.Now().Add(patience); ; {
		resp, err := http.Get("http://" + at(1) + "/ready")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
			err = fmt.Errorf("status %s", resp.Status)
		}
		require.Less(t, time.Now(), end, "istiod is not ready: %v", err)
		select {
		case err := <-ended:
			require.NoError(t, err, out.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	p := dial(t, "istiod", at(0))
	p.secure = at(3)
	return p
}

func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		_, port, err := net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		out = append(out, port)
	}
	return out
}

const patience = time.Minute
