package serve

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/cli/inspect"
	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/controlplane/webhook"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/clitest"
	"github.com/moonsail/moonsail/test/netns"
)

func TestMain(m *testing.M) {
	netns.Isolate()
	goleak.VerifyTestMain(m)
}

// moonsail runs a command line of moonsail, with serve and the commands that ask it.
func moonsail(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	return clitest.Run(t, clitest.Root(append(inspect.Commands(), NewCommand())...), args...)
}

const reviewsService = `apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec:
  clusterIP: 10.0.0.1
  ports: [{name: http, port: 80}]
`

// TestHelpListsKinds checks that the help text names exactly the kinds that have an effect.
func TestHelpListsKinds(t *testing.T) {
	long := NewCommand().Long
	for _, r := range config.Resources() {
		require.Equal(t, r.Read, regexp.MustCompile(`\b`+r.Kind+`\b`).MatchString(long), "%s\n%s", r.Kind, long)
	}
	for line := range strings.Lines(long) {
		require.LessOrEqual(t, len(line), 102, line)
	}
}

// TestServe runs a control plane on a directory and reads its changes and proxies as a user does.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "reviews.yaml"), []byte(reviewsService), 0o600))

	f := &flags{mesh: model.DefaultMesh()}
	listening := make(chan [2]net.Addr, 1)
	f.options.Listening = func(xds, http net.Addr) { listening <- [2]net.Addr{xds, http} }
	root := clitest.Root(f.command())
	var errOut bytes.Buffer
	root.SetErr(&errOut)
	root.SetArgs([]string{"serve", "--config", dir, "--http-addr", "127.0.0.1:0", "--xds-plaintext-addr", "127.0.0.1:0"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	status := make(chan int, 1)
	go func() { status <- terminal.Run(ctx, root) }()

	var address string
	select {
	case addrs := <-listening:
		address = addrs[1].String()
	case s := <-status:
		t.Fatalf("serve ended with %d: %s", s, &errOut)
	}
	require.Eventually(t, func() bool { return isReady(address) }, time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		_, out, _ := moonsail(t, "changes", "--address", address)
		return strings.Contains(out, "Service/shop/reviews") && strings.Contains(out, "0/0")
	}, time.Minute, 10*time.Millisecond)
	_, out, _ := moonsail(t, "proxies", "--address", address)
	require.Equal(t, "no proxies are connected\n", out)

	cancel()
	require.Zero(t, await.From(t, status), errOut.String())
	require.Contains(t, errOut.String(), `msg="change distributed" rev=`)
	require.Contains(t, errOut.String(), `objects=Service/shop/reviews`)
	http.DefaultClient.CloseIdleConnections()
}

func isReady(address string) bool {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + "/ready")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func TestServeRefusesFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	secure := slices.Clip([]string{"--config", filepath.Dir(file), "--xds-addr", "127.0.0.1:0"})
	for _, tc := range []struct {
		name   string
		args   []string
		status int
		want   string
	}{
		{"no source", nil, 2, "give --config, or --kubeconfig"},
		{"two sources", []string{"--config", ".", "--kubeconfig", "f"}, 2, "--config and --kubeconfig exclude each other"},
		{"context without kubeconfig", []string{"--config", ".", "--context", "c"}, 2, "--kubeconfig too"},
		{"kubeconfig does not exist", []string{"--kubeconfig", "nowhere", "--xds-plaintext-addr", "127.0.0.1:0"}, 1, "name the file that kubectl uses"},
		{"no address", []string{"--config", filepath.Dir(file), "--xds-plaintext-addr", ""}, 2, "no address for proxies"},
		{"directory does not exist", []string{"--config", file + "x"}, 1, "no such directory\n  where: --config " + file + "x\n  next:"},
		{"not a directory", []string{"--config", file}, 1, "not a directory"},
		{"unknown strategy", []string{"--config", filepath.Dir(file), "--route-strategy", "srds"}, 2, "use auto, rds, vhds or scoped"},
		{"unknown delivery", []string{"--config", filepath.Dir(file), "--outbound", "lazy"}, 2, `--outbound "lazy": unknown delivery: use full, on-demand or auto`},
		{"no services", []string{"--config", filepath.Dir(file), "--on-demand-from", "0"}, 2, "--on-demand-from 0: not a number of services: use 1 or more"},
		{"unknown transport", []string{"--config", filepath.Dir(file), "--xds-transport", "quic"}, 2, "use grpc or http2"},
		{"negative rate", []string{"--config", filepath.Dir(file), "--profile-block", "-1s"}, 2, "--profile-block: negative"},
		{"status of files", []string{"--config", filepath.Dir(file), "--status"}, 2, "leave it out with --config"},
		{"certificate without key", []string{"--config", filepath.Dir(file), "--webhook-addr", "127.0.0.1:0", "--webhook-cert", "f"}, 2, "--webhook-cert, --webhook-key: one is missing"},
		{"webhook without address", []string{"--config", filepath.Dir(file), "--webhook-config", "moonsail-validator"}, 2, "give --webhook-addr too"},
		{"certificate does not exist", []string{"--config", filepath.Dir(file), "--webhook-addr", "127.0.0.1:0",
			"--webhook-cert", file + "x", "--webhook-key", file + "x"}, 1, "certificate of the webhook"},
		{"unknown log format", []string{"--config", filepath.Dir(file), "--log-format", "xml"}, 2, `--log-format "xml": unknown format: use text or json`},
		{"address in use", []string{"--config", filepath.Dir(file), "--http-addr", taken.Addr().String()}, 1,
			"address already in use\n  next:  end the process that listens there"},
		{"debug pages on a network", []string{"--config", filepath.Dir(file), "--http-addr", "0.0.0.0:0"}, 2, "--http-addr 0.0.0.0:0: other machines can reach it"},
		{"debug pages on all addresses", []string{"--config", filepath.Dir(file), "--http-addr", ":0"}, 2, "give --http-token-file or --http-client-ca"},
		{"token file does not exist", []string{"--config", filepath.Dir(file), "--http-token-file", file + "x"}, 2, "--http-token-file: open"},
		{"token file is empty", []string{"--config", filepath.Dir(file), "--http-token-file", file}, 2, "no token found"},
		{"client CA without TLS", []string{"--config", filepath.Dir(file), "--http-client-ca", file}, 2, "set --http-cert and --http-key too"},
		{"certificate of debug pages without key", []string{"--config", filepath.Dir(file), "--http-cert", file}, 2, "--http-cert and --http-key: set both or neither"},
		{"invalid collector", []string{"--config", filepath.Dir(file), "--otlp-endpoint", "collector:4318"}, 2, "use http://HOST:4318"},
		{"invalid Prometheus", []string{"--config", filepath.Dir(file), "--prometheus", "prometheus:9090"}, 2, "use http://HOST:9090"},
		{"peer without port", []string{"--config", filepath.Dir(file), "--peer", "mesh-2"}, 2, `--peer "mesh-2": not an address: use host:port`},
		{"peer with port 0", []string{"--config", filepath.Dir(file), "--peer", "10.0.0.1:15012,10.0.0.2:0"}, 2, `--peer "10.0.0.2:0": invalid port`},
		{"peer with invalid name", []string{"--config", filepath.Dir(file), "--peer", "mesh 2:15012"}, 2, `neither a DNS name nor an IP address`},
		{"external authority without TLS", []string{"--config", filepath.Dir(file), "--workload-api", "unix:///s"}, 2, "give --xds-addr too"},
		{"certificate without roots", append(secure, "--xds-cert", file, "--xds-key", file), 2, "--xds-cert, --xds-key, --xds-root-cert: one is missing"},
		{"two external authorities", append(secure, "--xds-cert", file, "--workload-api", "unix:///s"), 2, "two sources of one certificate"},
		{"own and external authority", append(secure, "--ca-dir", ".", "--workload-api", "unix:///s"), 2, "issues no certificates"},
		{"invalid Workload API", append(secure, "--workload-api", "/run/socket"), 2, `"/run/socket": workload endpoint socket URI must have a "tcp" or "unix" scheme: use unix:///path`},
		{"external certificate does not exist", append(secure, "--xds-cert", file+"x", "--xds-key", file, "--xds-root-cert", file), 1, "a.yamlx: no such file"},
		{"external certificate is none", append(secure, "--xds-cert", file, "--xds-key", file, "--xds-root-cert", file), 1, "failed to find any PEM data"},
		{"invalid address", []string{"--config", filepath.Dir(file), "--http-addr", "nowhere"}, 1, "--http-addr"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, _, errOut := moonsail(t, append([]string{"serve", "--xds-plaintext-addr", "127.0.0.1:0"}, tc.args...)...)
			require.Equal(t, tc.status, status, errOut)
			require.Contains(t, errOut, tc.want)
		})
	}
}

func TestInjectFlags(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("imgae: x\n"), 0o600))
	for _, tt := range []struct {
		f       injectFlags
		o       webhook.Options
		cluster bool
		want    string
	}{
		{injectFlags{file: "x"}, webhook.Options{}, true, "give --inject too"},
		{injectFlags{on: true}, webhook.Options{}, true, "--webhook-addr"},
		{injectFlags{on: true, config: "c"}, webhook.Options{Addr: ":1", CertFile: "f"}, true, "--webhook-cert"},
		{injectFlags{on: true, config: "c"}, webhook.Options{Addr: ":1"}, false, "--config"},
		{injectFlags{on: true, file: bad}, webhook.Options{Addr: ":1"}, true, "imgae"},
		{injectFlags{on: true, file: bad + "x"}, webhook.Options{Addr: ":1"}, true, "bad.yamlx"},
	} {
		require.ErrorContains(t, tt.f.into(&tt.o, tt.cluster), tt.want)
	}
	o := webhook.Options{Addr: ":1"}
	require.NoError(t, (&injectFlags{on: true, config: "c"}).into(&o, true))
	require.Equal(t, "c", o.InjectConfig)
	require.NotNil(t, o.Inject)
	o = webhook.Options{}
	require.NoError(t, (&injectFlags{}).into(&o, true))
	require.Nil(t, o.Inject)
}
