package e2e

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestEnvoyFiltersForOldIstio applies the EnvoyFilters of a user's report about Istio 1.8, which name filters of Istio's own
// Envoy. No sidecar of that version may receive or refuse them. With filters that this Envoy has, the same matches must
// apply, on both sides, and for no other version.
func TestEnvoyFiltersForOldIstio(t *testing.T) {
	text, err := os.ReadFile("testdata/envoyfilters-1.8.yaml")
	require.NoError(t, err)
	stats, exchange, ok := strings.Cut(string(text), "---\n")
	require.True(t, ok)

	web, own := startApp(t, "web", "v1"), startApp(t, "own", "v1")
	old, now := newClient("old"), newClient("now")
	old.version = "1.8.3"
	base := []string{service("web", web), now.sidecar("./*"), old.sidecar("./*") + fmt.Sprintf(`
  ingress: [{port: {number: %d, name: http, protocol: HTTP}, bind: %s, captureMode: NONE, defaultEndpoint: "127.0.0.1:%d"}]`,
		guardedHTTP, old.ip, relay(t, net.JoinHostPort(own.ip, fmt.Sprint(own.port))))}
	m := startMesh(t, server.RoutesAuto, append(base, stats, exchange)...)
	old.start(t, m, false)
	now.start(t, m, false)
	inbound := &client{bareEnvoy: old.bareEnvoy, at: fmt.Sprintf("http://%s:%d/", old.ip, guardedHTTP)}
	for _, c := range []*client{old, now} {
		c.requireReply(t, reply{200, ""}, "web", "/")
		noRefusals(t, m, c)
	}
	inbound.requireReply(t, reply{200, ""}, "own", "/")
	for _, name := range []string{"stats-filter-1.8", "metadata-exchange-1.8"} {
		_, out := m.ask("explain", "envoyfilter/"+name, "-n", "istio-system")
		require.Regexp(t, `warning: spec\.configPatches\[0\]\.patch\.value\..*Envoy 1\.40 has no plugin built in.*the patch is left out`, out)
	}

	m.apply(append(base, withLua(t, stats, "out"), withLua(t, exchange, "in"))...)
	old.requireReply(t, reply{200, "out"}, "web", "/")
	inbound.requireReply(t, reply{200, "in"}, "own", "/")
	now.requireReply(t, reply{200, ""}, "web", "/")
	noRefusals(t, m, old)
	noRefusals(t, m, now)
}

// withLua replaces the filter of one of the report's EnvoyFilters by one that marks responses.
func withLua(t *testing.T, filter, mark string) string {
	t.Helper()
	head, _, ok := strings.Cut(filter, "type_url:")
	require.True(t, ok)
	return head + fmt.Sprintf(`type_url: type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua
          value:
            default_source_code:
              inline_string: "function envoy_on_response(h) h:headers():add('x-lua', '%s') end"
`, mark)
}
