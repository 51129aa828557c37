package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// buildWasm compiles testdata's filter, and gives its file.
func buildWasm(t *testing.T) (file string) {
	t.Helper()
	dir := t.TempDir()
	source, err := os.ReadFile("testdata/wasm.go.txt")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), source, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module filter\n\ngo 1.24\n"), 0o600))
	file = filepath.Join(dir, "filter.wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", file, ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOTOOLCHAIN=local", "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return file
}

func wasmPlugin(name, file, more string) string {
	return fmt.Sprintf(`apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: %s, namespace: shop}
spec:
  url: file://%s
%s`, name, file, more)
}

// answer is what comes of a call through the client's sidecar; its body is to be closed.
func (m *mutual) answer(host string) (*http.Response, error) {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, fmt.Sprintf("http://%s:%d/", m.client.ip, serviceHTTP), http.NoBody)
	require.NoError(m.t, err)
	req.Host, req.Close = host, true
	return (&http.Client{Timeout: callLimit}).Do(req)
}

// headers are those of the response to a call through the client's sidecar.
func (m *mutual) headers(host string) (int, http.Header) {
	m.t.Helper()
	resp, err := m.answer(host)
	require.NoError(m.t, err)
	require.NoError(m.t, resp.Body.Close())
	return resp.StatusCode, resp.Header
}

// TestWasmPlugins: real modules run on both sides of a call, each in its place, with their
// configuration and environment, until they are taken away.
func TestWasmPlugins(t *testing.T) {
	file := buildWasm(t)
	m := startMutual(t)
	status, header := m.headers("server")
	require.Equal(t, http.StatusOK, status)
	require.Empty(t, header.Values("x-wasm-config"))

	one := wasmPlugin("one", file, `  selector: {matchLabels: {app: server}}
  match: [{mode: SERVER}]
  pluginConfig: {by: server}
  vmConfig: {env: [{name: TEAM, value: shop}]}`)
	two := wasmPlugin("two", file, `  selector: {matchLabels: {app: client}}
  match: [{mode: CLIENT}]
  phase: AUTHN
  pluginConfig: {by: client}`)
	m.apply(m.config("server", one, two)...)
	m.await(t, func(status int, h http.Header) bool {
		return status == http.StatusOK && strings.Join(h.Values("x-wasm-config"), " ") == `{"by":"server"} {"by":"client"}` && h.Get("x-wasm-team") == "shop"
	})
	m.requireNothingHeld()

	m.apply(m.config("server", strings.ReplaceAll(one, "{by: server}", "{by: another}"))...)
	m.await(t, func(status int, h http.Header) bool { return h.Get("x-wasm-config") == `{"by":"another"}` })
	m.apply(m.config("server")...)
	m.await(t, func(status int, h http.Header) bool {
		return status == http.StatusOK && len(h.Values("x-wasm-config")) == 0
	})
}

// await waits until calls are answered as they are to be: listeners take up modules once they
// have them.
func (m *mutual) await(t *testing.T, is func(int, http.Header) bool) {
	t.Helper()
	var status int
	var header http.Header
	eventually(t, "the plugins are in force", func() bool {
		status, header = m.headers("server")
		return is(status, header)
	}, func() string { return fmt.Sprint(status, header, m.server.log.String(), m.client.log.String()) })
}
