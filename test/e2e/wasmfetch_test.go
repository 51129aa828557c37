package e2e

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/stretchr/testify/require"
)

// modules is the server of plugins' modules: "filter.wasm" and "broken.wasm", which begins like a module and is
// invalid.
type modules struct {
	*httptest.Server
	down atomic.Bool
}

func startModules(t *testing.T, file string) *modules {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	m := &modules{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case m.down.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/filter.wasm":
			_, _ = w.Write(content)
		case r.URL.Path == "/broken.wasm":
			_, _ = io.WriteString(w, "\x00asm\x01\x00\x00\x00 and no more")
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(m.Close)
	return m
}

// startRegistry serves one image: "filter:v1" with a module.
func startRegistry(t *testing.T, file string) (host string, private *atomic.Bool) {
	t.Helper()
	private = &atomic.Bool{} // it requires a password
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); private.Load() && (user != "me" || password != "secret-password") {
			w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer(content, "application/vnd.module.wasm.content.layer.v1+wasm"))
	require.NoError(t, err)
	host = strings.TrimPrefix(s.URL, "http://")
	ref, err := name.ParseReference(host + "/filter:v1")
	require.NoError(t, err)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	require.NoError(t, remote.Write(ref, image, remote.WithContext(t.Context()), remote.WithTransport(transport)))
	return host, private
}

func fetchedPlugin(name, url, more string) string {
	return strings.ReplaceAll(wasmPlugin(name, "", more), "file://", url)
}

// refusals returns what agents report about plugins.
func (m *mutual) refusals() string {
	var out []string
	for _, p := range m.proxies() {
		for _, h := range held(p) {
			out = append(out, fmt.Sprintf("%s: %s: %s", p.Name, h.Name, h.Message))
		}
	}
	return strings.Join(out, "\n")
}

func (m *mutual) awaitRefusal(t *testing.T, parts ...string) {
	t.Helper()
	eventually(t, "the refusal is reported", func() bool {
		text := m.refusals()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				return false
			}
		}
		return len(parts) > 0 || text == ""
	}, func() string { return m.refusals() + m.server.log.String() })
}

// TestFetchedWasmPlugins checks that modules are fetched from a server and from a registry. If one cannot be fetched,
// the last one stays in force, otherwise failStrategy decides, and the control plane must report the reason.
func TestFetchedWasmPlugins(t *testing.T) {
	file := buildWasm(t)
	shelf := startModules(t, file)
	images, _ := startRegistry(t, file)
	m := startMutual(t)
	one := fetchedPlugin("one", shelf.URL+"/filter.wasm", `  selector: {matchLabels: {app: server}}
  match: [{mode: SERVER}]
  pluginConfig: {by: server}
  vmConfig: {env: [{name: TEAM, value: shop}]}`)
	two := fetchedPlugin("two", "oci://"+images+"/filter:v1", `  selector: {matchLabels: {app: client}}
  match: [{mode: CLIENT}]
  pluginConfig: {by: client}`)
	m.apply(m.config("server", one, two)...)
	m.await(t, func(status int, h http.Header) bool {
		return status == http.StatusOK && strings.Join(h.Values("x-wasm-config"), " ") == `{"by":"server"} {"by":"client"}` && h.Get("x-wasm-team") == "shop"
	})
	m.awaitRefusal(t)

	shelf.down.Store(true)
	changed := strings.ReplaceAll(one, "{by: server}", "{by: another}")
	m.apply(m.config("server", changed)...)
	m.await(t, func(status int, h http.Header) bool {
		return status == http.StatusOK && strings.Join(h.Values("x-wasm-config"), " ") == `{"by":"another"}`
	})
	wrong := strings.ReplaceAll(changed, "/filter.wasm", "/gone.wasm") + "\n  failStrategy: FAIL_CLOSE"
	m.apply(m.config("server", wrong)...)
	m.awaitRefusal(t, "server.plugins", "wasmplugin/shop.one", "503 Service Unavailable")
	status, header := m.headers("server")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, `{"by":"another"}`, header.Get("x-wasm-config"), "what was in force stays")
	shelf.down.Store(false)
	m.apply(m.config("server", changed)...)
	m.awaitRefusal(t)
}

// TestFailStrategyOfMissingModules checks that failStrategy decides for new plugins whose module is missing, has another
// hash, or is refused by Envoy. A corrected version must be used.
func TestFailStrategyOfMissingModules(t *testing.T) {
	file := buildWasm(t)
	shelf := startModules(t, file)
	m := startMutual(t)
	for _, c := range []struct{ name, path, more, why string }{
		{"gone", "/gone.wasm", "", "404 Not Found"},
		{"sum", "/filter.wasm", "\n  sha256: " + strings.Repeat("a", 64), "its SHA-256 is"},
		{"broken", "/broken.wasm", "", "Envoy refuses it"},
	} {
		closed := fetchedPlugin(c.name, shelf.URL+c.path, "  selector: {matchLabels: {app: server}}\n  match: [{mode: SERVER}]\n  pluginConfig: {a: b}"+c.more)
		m.apply(m.config("server", closed)...)
		m.await(t, func(status int, _ http.Header) bool { return status == http.StatusForbidden })
		m.awaitRefusal(t, "server.plugins", "wasmplugin/shop."+c.name, c.why)
		m.apply(m.config("server", closed+"\n  failStrategy: FAIL_OPEN")...)
		m.await(t, func(status int, h http.Header) bool { return status == http.StatusOK })
		right := fetchedPlugin(c.name, shelf.URL+"/filter.wasm", "  selector: {matchLabels: {app: server}}\n  match: [{mode: SERVER}]\n  pluginConfig: {a: b}")
		m.apply(m.config("server", right)...)
		m.await(t, func(status int, h http.Header) bool { return h.Get("x-wasm-config") == `{"a":"b"}` })
		m.awaitRefusal(t)
		m.apply(m.config("server")...)
		m.await(t, func(status int, h http.Header) bool { return status == http.StatusOK && h.Get("x-wasm-config") == "" })
	}
}

// TestModulesOfPrivateRegistries checks that an agent presents the credentials of imagePullSecret to the registry, and
// that no debug page shows them.
func TestModulesOfPrivateRegistries(t *testing.T) {
	images, private := startRegistry(t, buildWasm(t))
	private.Store(true)
	m := startMutual(t)
	more := "  selector: {matchLabels: {app: server}}\n  match: [{mode: SERVER}]\n  pluginConfig: {a: b}\n  imagePullSecret: images"
	plugin := fetchedPlugin("private", "oci://"+images+"/filter:v1", more)
	m.apply(m.config("server", plugin)...)
	m.awaitRefusal(t, "server.plugins", "401")
	secret := fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: images, namespace: shop}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: '{"auths":{"%s":{"username":"me","password":"secret-password"}}}'}`, images)
	m.apply(m.config("server", plugin, secret)...)
	m.await(t, func(status int, h http.Header) bool { return h.Get("x-wasm-config") == `{"a":"b"}` })
	m.awaitRefusal(t)
	require.Contains(t, m.page(t, "/debug/proxies/server.plugins.shop/config/extensions?full"), "[redacted]")
	for _, page := range []string{"/debug/proxies/server.plugins.shop/config/all?full", "/debug/store/Secret/shop/images", "/debug/store/WasmPlugin"} {
		require.NotContains(t, m.page(t, page), "secret-password", page)
	}
	require.NotContains(t, m.server.log.String(), "secret-password")
}
