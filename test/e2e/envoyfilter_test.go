package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestEnvoyFilter changes, under traffic, what sidecars do with calls: a filter is added, stays in force beside patches
// that cannot be applied and one that Envoy refuses, and is removed.
func TestEnvoyFilter(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			envoyFilter(t, way.strategy, way.sotw)
		})
	}
}

func envoyFilter(t *testing.T, strategy server.RouteStrategy, sotw bool) {
	web, other := startApp(t, "web", "v1"), startApp(t, "other", "v1")
	c := newClient("client")
	c.drain = time.Minute
	base := []string{c.sidecar("./*"), service("web", web), service("other", other)}
	with := func(more ...string) []string { return append(append([]string{}, base...), more...) }
	m := startMesh(t, strategy, base...)
	c.start(t, m, sotw)
	calls, bank := startTraffic(t, c, "web"), startTraffic(t, c, "other")
	calls.requireOnly("web-v1")
	c.requireReply(t, reply{200, ""}, "web", "/blocked")

	m.apply(with(lua("added", "yes"), blocked)...)
	c.requireReply(t, reply{200, "yes"}, "web", "/")
	c.requireReply(t, reply{418, "yes"}, "web", "/blocked") // patches apply to virtual hosts however they are served
	c.requireReply(t, reply{200, "yes"}, "other", "/blocked")

	m.apply(with(lua("added", "yes"), blocked, cannotApply)...)
	c.requireReply(t, reply{200, "yes"}, "web", "/")
	noRefusals(t, m, c)

	change := m.apply(with(lua("added", "yes"), blocked, lua("broken", "' not Lua '"), service("new", other), routes("other", to("web")))...)
	require.Equal(t, changelog.Proxies{Concerned: 1, Nacked: 1}, change.Proxies)
	requireHeldAll(t, m, c, "script load error")
	c.requireReply(t, reply{200, "yes"}, "web", "/") // the earlier filter stays
	bank.requireOnly("web-v1")                       // a change in the same batch

	m.apply(with(blocked)...)
	c.requireReply(t, reply{200, ""}, "web", "/")
	require.Empty(t, held(*m.proxy(c.name)))
	m.apply(base...)
	c.requireReply(t, reply{200, ""}, "web", "/blocked")
	calls.requireOnly("web-v1")
}

// reply is the response to a call.
type reply struct {
	status int
	lua    string // the header that the filter adds
}

// ask makes a call on a separate connection.
func (c *client) ask(t *testing.T, host, path string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(c.url(), "/")+path, http.NoBody)
	require.NoError(t, err)
	req.Host, req.Close = host, true
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	return reply{resp.StatusCode, resp.Header.Get("x-lua")}
}

// requireReply waits for a reply: Envoy ACKs before its workers use the new configuration.
func (c *client) requireReply(t *testing.T, want reply, host, path string) {
	t.Helper()
	var got reply
	eventually(t, host+path+" is answered as it should", func() bool {
		got = c.ask(t, host, path)
		return got == want
	}, func() string { return fmt.Sprintf("%+v instead of %+v", got, want) })
}

// lua is a filter that adds a header to responses.
func lua(name, value string) string {
	return luaFilter(name, fmt.Sprintf("function envoy_on_response(h) h:headers():add('x-lua', '%s') end", value))
}

// luaFilter adds a script in front of the client's router.
func luaFilter(name, script string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: %[1]s, namespace: shop}
spec:
  workloadSelector: {labels: {app: client}}
  configPatches:
  - applyTo: HTTP_FILTER
    match:
      context: SIDECAR_OUTBOUND
      listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: envoy.filters.http.router}}}}
    patch:
      operation: INSERT_BEFORE
      value:
        name: %[1]s.lua
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          default_source_code:
            inline_string: |
              %[2]s`, name, script)
}

// blocked answers one path of one virtual host.
const blocked = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: blocked, namespace: istio-system}
spec:
  configPatches:
  - applyTo: HTTP_ROUTE
    match: {routeConfiguration: {vhost: {name: "web.shop.svc.cluster.local:15080"}}}
    patch:
      operation: INSERT_FIRST
      value: {name: blocked, match: {path: /blocked}, direct_response: {status: 418}}`

// cannotApply has patches that Envoy would refuse: all are left out.
const cannotApply = `apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: cannot-apply, namespace: shop}
spec:
  configPatches:
  - applyTo: HTTP_FILTER
    patch:
      operation: INSERT_FIRST
      value: {name: istio.stats, typed_config: {"@type": type.googleapis.com/stats.PluginConfig}}
  - applyTo: HTTP_FILTER
    patch:
      operation: ADD
      value: {name: late, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 1}}
  - applyTo: CLUSTER
    patch: {operation: MERGE, value: {connect_timeout: -1s}}`

// requireHeldAll checks that resources are held back, all for one reason.
func requireHeldAll(t *testing.T, m *mesh, c *client, says string) {
	t.Helper()
	h := held(*m.proxy(c.name))
	require.NotEmpty(t, h)
	for _, r := range h {
		require.Contains(t, r.Message, says)
	}
}
