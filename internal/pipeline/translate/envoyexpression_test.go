package translate

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/cel"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/listener"
)

// TestEnvoyAcceptsExpressions checks that Envoy accepts the expressions that cel.Check accepts at its bounds, and
// refuses a listener with an expression that cel.Check refuses.
func TestEnvoyAcceptsExpressions(t *testing.T) {
	b := newBootstrap()
	for i, text := range []string{
		"has(filter_state['a.b'].c)", "'x' in request.headers", "request.host.matches('a{95}')", "request.host.matches('a{1,48}')",
		`request.host.matches(r'\p{Greek}')`, "request.time.getHours('CET') > 1", "9223372036854775807 > -9223372036854775808",
		`re.extract(request.path, '/(.*)', r'\1') == 'a'`, "re.capture(request.path, '/(.*)') == 'a'", "re.captureN(request.path, '/(?P<a>.*)')['a'] == 'b'",
	} {
		require.NoError(t, cel.Check(text))
		b.add(t, string(rune('a'+i)), loggedIf(t, i, text))
	}
	requireValid(t, b.message())
	for _, text := range []string{
		"has(request.headers['x'])", "request.host.matches('(')", "request.host.matches('a{98}')", "request.host.matches('a{1,49}')",
		`request.host.matches(r'\pL')`, `request.host == '\d'`, "size()", "string(response.code) == '200'", "[1].exists(x, x == 1)", "99999999999999999999 > 1",
		"re.capture(request.path) == 'a'", "re.matches(request.path, 'a')", "re.captureN(request.path, 'a', 'b', 'c') == {}",
	} {
		require.Error(t, cel.Check(text), text)
		b := newBootstrap()
		b.add(t, "broken", loggedIf(t, 0, text))
		out, err := validate(t, b.message())
		require.Error(t, err, "%s: %s", text, out)
	}
}

// loggedIf is a listener that logs the requests for which an expression is true.
func loggedIf(t *testing.T, i int, text string) *listenerv3.Listener {
	t.Helper()
	l, err := listener.Translate(&ir.Listener{Name: "l", Address: "127.0.0.1", Port: uint32(20000 + i), Default: &ir.FilterChain{Name: "c", HTTP: &ir.HTTPChain{
		StatPrefix: "p", RouteConfig: "80",
		Telemetry: &ir.Telemetry{Logs: []ir.AccessLog{{Name: "envoy", Kind: model.ProviderFileLog, Format: model.LogFormat{Path: "/dev/null"}, Filter: text}}},
	}}})
	require.NoError(t, err)
	return l
}
