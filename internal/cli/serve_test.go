package cli

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/test/await"
)

const reviewsService = `apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec:
  clusterIP: 10.0.0.1
  ports: [{name: http, port: 80}]
`

// TestServeNamesWhatItReads holds the help text to the kinds that there are.
func TestServeNamesWhatItReads(t *testing.T) {
	long := (&serveFlags{mesh: model.DefaultMesh()}).command().Long
	for _, r := range config.Resources() {
		require.Equal(t, r.Read, regexp.MustCompile(`\b`+r.Kind+`\b`).MatchString(long), "%s\n%s", r.Kind, long)
	}
	for line := range strings.Lines(long) {
		require.LessOrEqual(t, len(line), 102, line)
	}
}

// TestServe runs a control plane on a directory and asks it, as an operator would.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "reviews.yaml"), []byte(reviewsService), 0o600))

	f := &serveFlags{mesh: model.DefaultMesh()}
	listening := make(chan [2]net.Addr, 1)
	f.options.Listening = func(xds, http net.Addr) { listening <- [2]net.Addr{xds, http} }
	root := &cobra.Command{Use: "moonsail", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(f.command())
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

func TestServeRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, tc := range []struct {
		name   string
		args   []string
		status int
		want   string
	}{
		{"no source", nil, 2, "give --config, or --kubeconfig"},
		{"two sources", []string{"--config", ".", "--kubeconfig", "f"}, 2, "two sources"},
		{"a context of nothing", []string{"--config", ".", "--context", "c"}, 2, "--kubeconfig too"},
		{"no kubeconfig", []string{"--kubeconfig", "nowhere", "--xds-plaintext-addr", "127.0.0.1:0"}, 1, "name the file that kubectl uses"},
		{"no address", []string{"--config", filepath.Dir(file), "--xds-plaintext-addr", ""}, 2, "no address to serve proxies at"},
		{"a directory that is not there", []string{"--config", file + "x"}, 1, "no such directory\n  where: --config " + file + "x\n  next:"},
		{"a file", []string{"--config", file}, 1, "it is a file"},
		{"a strategy", []string{"--config", filepath.Dir(file), "--route-strategy", "srds"}, 2, "it is auto, rds, vhds or scoped"},
		{"a transport", []string{"--config", filepath.Dir(file), "--xds-transport", "quic"}, 2, "it is grpc or http2"},
		{"a rate", []string{"--config", filepath.Dir(file), "--profile-block", "-1s"}, 2, "not negative"},
		{"statuses of files", []string{"--config", filepath.Dir(file), "--status"}, 2, "leave it out with --config"},
		{"half a certificate", []string{"--config", filepath.Dir(file), "--webhook-addr", "127.0.0.1:0", "--webhook-cert", "f"}, 2, "go together"},
		{"a webhook nowhere", []string{"--config", filepath.Dir(file), "--webhook-config", "moonsail-validator"}, 2, "give --webhook-addr too"},
		{"a certificate that is not there", []string{"--config", filepath.Dir(file), "--webhook-addr", "127.0.0.1:0",
			"--webhook-cert", file + "x", "--webhook-key", file + "x"}, 1, "the webhook's certificate"},
		{"a log format", []string{"--config", filepath.Dir(file), "--log-format", "xml"}, 2, "text or json"},
		{"an address in use", []string{"--config", filepath.Dir(file), "--http-addr", taken.Addr().String()}, 1,
			"address already in use\n  next:  another control plane may be running"},
		{"pages for everybody", []string{"--config", filepath.Dir(file), "--http-addr", "0.0.0.0:0"}, 2, "--http-addr 0.0.0.0:0 can be reached by others"},
		{"pages on every address", []string{"--config", filepath.Dir(file), "--http-addr", ":0"}, 2, "give --http-token-file or --http-client-ca"},
		{"a token that is not there", []string{"--config", filepath.Dir(file), "--http-token-file", file + "x"}, 2, "--http-token-file: open"},
		{"no token", []string{"--config", filepath.Dir(file), "--http-token-file", file}, 2, "no token found"},
		{"a CA without TLS", []string{"--config", filepath.Dir(file), "--http-client-ca", file}, 2, "give --http-cert and --http-key too"},
		{"half of the pages' certificate", []string{"--config", filepath.Dir(file), "--http-cert", file}, 2, "--http-cert and --http-key go together"},
		{"a collector that is none", []string{"--config", filepath.Dir(file), "--otlp-endpoint", "collector:4318"}, 2, "the form is http://HOST:4318"},
		{"another control plane without a port", []string{"--config", filepath.Dir(file), "--peer", "mesh-2"}, 2, `--peer: "mesh-2" is not host:port`},
		{"one at no port", []string{"--config", filepath.Dir(file), "--peer", "10.0.0.1:15012,10.0.0.2:0"}, 2, `--peer: "10.0.0.2:0" has no port`},
		{"one that is no name", []string{"--config", filepath.Dir(file), "--peer", "mesh 2:15012"}, 2, `neither a DNS name nor an IP address`},
		{"an address that is none", []string{"--config", filepath.Dir(file), "--http-addr", "nowhere"}, 1, "--http-addr"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, _, errOut := moonsail(t, append([]string{"serve", "--xds-plaintext-addr", "127.0.0.1:0"}, tc.args...)...)
			require.Equal(t, tc.status, status, errOut)
			require.Contains(t, errOut, tc.want)
		})
	}
}
