package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBrokenModulesBlockNoListeners checks that Envoy refuses a module but still accepts changes of listeners that
// name its plugin, whether an earlier module stays in force or the plugin is new to them. Listeners that drain keep the
// configuration of the plugin.
func TestBrokenModulesBlockNoListeners(t *testing.T) {
	file := buildWasm(t)
	shelf := startModules(t, file)
	m := startMutual(t)
	for kind, of := range map[string]struct {
		plugin func(string) string
		says   func() string
		name   string
	}{
		"of requests": {func(p string) string { return p }, func() string {
			status, header := m.headers("server")
			return fmt.Sprint(status, header.Values("x-wasm-config"))
		}, "wasmplugin/shop.calls"},
		"of connections": {ofConnections, func() string { return m.statusLine("server") }, "wasmplugin/shop.calls/network"},
	} {
		t.Run(kind, func(t *testing.T) {
			const where = `  selector: {matchLabels: {app: client}}
  match: [{mode: CLIENT, ports: [{number: %d}]}]
  pluginConfig: {by: %s}`
			calls := of.plugin(fetchedPlugin("calls", shelf.URL+"/filter.wasm", fmt.Sprintf(where, serviceHTTP, "client")))
			more := of.plugin(wasmPlugin("more", file, fmt.Sprintf(where, serviceHTTP, "more")))
			broken := strings.ReplaceAll(calls, "/filter.wasm", "/broken.wasm")
			says := func(what string, parts ...string) {
				t.Helper()
				eventually(t, what, func() bool {
					text := of.says()
					for _, part := range parts {
						if !strings.Contains(text, part) {
							return false
						}
					}
					return true
				}, func() string { return of.says() + m.refusals() + m.client.log.String() })
			}
			m.apply(m.config("server", calls)...)
			says("the plugin is in force", "200", `{"by":"client"}`)
			m.apply(m.config("server", broken)...)
			m.awaitRefusal(t, "client.plugins", of.name)
			says("what was in force stays", "200", `{"by":"client"}`)
			m.apply(m.config("server", broken, more)...)
			says("another plugin is in force, too", "200", `{"by":"client"}`, `{"by":"more"}`)

			m.apply(m.config("server", calls)...)
			m.awaitRefusal(t)
			m.apply(m.config("server")...)
			eventually(t, "the plugin is missing", func() bool { return !strings.Contains(of.says(), "by") }, of.says)
			m.apply(m.config("server", broken)...)
			eventually(t, "no call passes", func() bool {
				text := of.says()
				return strings.Contains(text, "EOF") || strings.Contains(text, "403")
			}, func() string { return of.says() + m.refusals() + m.client.log.String() })
			m.awaitRefusal(t, "client.plugins", of.name)
			m.apply(m.config("server")...)
			m.awaitRefusal(t)
			eventually(t, "the plugin is missing", func() bool { return strings.HasPrefix(of.says(), "200") }, of.says)
		})
	}
}

// TestRefusedListenersAreRetried checks that a listener that Envoy refused because of a broken module is accepted
// when the module is replaced, without a change of the mesh.
func TestRefusedListenersAreRetried(t *testing.T) {
	good, file := buildWasm(t), filepath.Join(t.TempDir(), "filter.wasm")
	require.NoError(t, os.WriteFile(file, []byte("\x00asm\x01\x00\x00\x00 and no more"), 0o600))
	m := startMutual(t)
	m.apply(m.config("server", wasmPlugin("own", file, `  selector: {matchLabels: {app: client}}
  match: [{mode: CLIENT}]
  pluginConfig: {by: client}`))...)
	m.awaitRefusal(t, "Unable to create Wasm plugin")
	content, err := os.ReadFile(good)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file+".new", content, 0o600))
	require.NoError(t, os.Rename(file+".new", file))
	m.await(t, func(_ int, h http.Header) bool { return h.Get("x-wasm-config") == `{"by":"client"}` })
	m.awaitRefusal(t)
}
