package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// buildWasm compiles testdata's filter and writes it into a separate file.
func buildWasm(t *testing.T) (file string) {
	t.Helper()
	module, err := compiledWasm()
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "filter.wasm")
	require.NoError(t, os.WriteFile(file, module, 0o600))
	return file
}

// compiledWasm compiles the filter once for all tests.
var compiledWasm = sync.OnceValues(func() (module []byte, err error) {
	dir, err := os.MkdirTemp("", "e2e-wasm-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	source, err := os.ReadFile("testdata/wasm.go.txt")
	for name, content := range map[string][]byte{"main.go": source, "go.mod": []byte("module filter\n\ngo 1.24\n")} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "filter.wasm")
	cmd := exec.CommandContext(context.Background(), "go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", file, ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOTOOLCHAIN=local", "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return os.ReadFile(file)
})

func wasmPlugin(name, file, more string) string {
	return fmt.Sprintf(`apiVersion: extensions.istio.io/v1alpha1
kind: WasmPlugin
metadata: {name: %s, namespace: shop}
spec:
  url: file://%s
%s`, name, file, more)
}

// answer returns the response to a call through the client's sidecar. The caller closes its body.
func (m *mutual) answer(host string) (*http.Response, error) {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, fmt.Sprintf("http://%s:%d/", m.client.ip, serviceHTTP), http.NoBody)
	require.NoError(m.t, err)
	req.Host, req.Close = host, true
	return (&http.Client{Timeout: callLimit}).Do(req)
}

// headers returns those of the response to a call through the client's sidecar.
func (m *mutual) headers(host string) (int, http.Header) {
	m.t.Helper()
	resp, err := m.answer(host)
	require.NoError(m.t, err)
	require.NoError(m.t, resp.Body.Close())
	return resp.StatusCode, resp.Header
}

// TestWasmPlugins checks that real modules run on both sides of a call, in their order, with their configuration and
// environment, until they are removed.
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

// await waits until calls get the expected answer: listeners use modules once they have them.
func (m *mutual) await(t *testing.T, is func(int, http.Header) bool) {
	t.Helper()
	var status int
	var header http.Header
	eventually(t, "the plugins are in force", func() bool {
		status, header = m.headers("server")
		return is(status, header)
	}, func() string { return fmt.Sprint(status, header, m.server.log.String(), m.client.log.String()) })
}
