package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ofConnections is a plugin for connections.
func ofConnections(plugin string) string { return plugin + "\n  type: NETWORK" }

// statusLine returns the first line of the response to a call through the client's sidecar, without the protocol, or
// the error.
func (m *mutual) statusLine(host string) string {
	m.t.Helper()
	resp, err := m.answer(host)
	if err != nil {
		return err.Error()
	}
	require.NoError(m.t, resp.Body.Close())
	return resp.Status
}

// awaitText waits until get returns a text.
func (m *mutual) awaitText(t *testing.T, want string, get func() string) {
	t.Helper()
	var got string
	eventually(t, want, func() bool {
		got = get()
		return got == want
	}, func() string { return got + m.server.log.String() + m.client.log.String() })
}

// TestNetworkPlugins checks that modules see the bytes of connections: before HTTP on one side, and of TCP inside
// mutual TLS on the other. A missing module closes connections or lets them pass. A plugin may become one for requests
// without a refusal.
func TestNetworkPlugins(t *testing.T) {
	file := buildWasm(t)
	shelf := startModules(t, file)
	m := startMutual(t)
	welcome := func() string { return m.line(m.client.ip, serviceTCP) }
	answer := func() string { return m.statusLine("server") }
	bytes := func(by string) string {
		return ofConnections(wasmPlugin("bytes", file, fmt.Sprintf(`  selector: {matchLabels: {app: server}}
  match: [{mode: SERVER, ports: [{number: %d}]}]
  pluginConfig: {by: %s}`, memberTCP, by)))
	}
	calls := fetchedPlugin("calls", shelf.URL+"/filter.wasm", fmt.Sprintf(`  selector: {matchLabels: {app: client}}
  match: [{mode: CLIENT, ports: [{number: %d}]}]
  pluginConfig: {by: client}`, serviceHTTP))
	m.apply(m.config("server", bytes("server"), ofConnections(calls))...)
	m.awaitText(t, "welcome {\"by\":\"server\"}\n", welcome)
	m.awaitText(t, `200 OK {"by":"client"}`, answer)
	m.awaitRefusal(t)
	m.requireHeld(t, bytes)

	m.apply(m.config("server", calls)...)
	m.await(t, func(_ int, h http.Header) bool { return h.Get("x-wasm-config") == `{"by":"client"}` })
	m.awaitText(t, "200 OK", answer)
	m.awaitText(t, "welcome\n", welcome)
	m.awaitRefusal(t)
	m.apply(m.config("server", ofConnections(calls))...)
	m.awaitText(t, `200 OK {"by":"client"}`, answer)
	m.awaitRefusal(t)

	for _, path := range []string{"/gone.wasm", "/broken.wasm"} {
		m.apply(m.config("server")...)
		m.awaitText(t, "200 OK", answer)
		wrong := ofConnections(strings.ReplaceAll(calls, "/filter.wasm", path))
		m.apply(m.config("server", wrong)...)
		eventually(t, "connections are closed", func() bool { return strings.Contains(answer(), "EOF") }, func() string { return answer() + m.client.log.String() })
		m.awaitRefusal(t, "client.plugins", "wasmplugin/shop.calls/network")
		m.apply(m.config("server", wrong+"\n  failStrategy: FAIL_OPEN")...)
		m.awaitText(t, "200 OK", answer)
	}
}

// requireHeld checks a plugin that delays new connections. Until it lets one pass, the server is not called, although
// the caller's certificate is known. After that, it is.
func (m *mutual) requireHeld(t *testing.T, configured func(string) string) {
	t.Helper()
	m.apply(m.config("server", configured("release-hold"))...)
	m.awaitText(t, "welcome {\"by\":\"release-hold\"}\n", func() string { return m.line(m.client.ip, serviceTCP) })
	m.apply(m.config("server", configured("hold"))...)
	m.awaitText(t, "nothing", func() string { return m.unasked(serviceTCP) })
	before := m.server.called.Load()
	require.Equal(t, "nothing", m.unasked(serviceTCP))
	require.Equal(t, before, m.server.called.Load(), "the server is not called")
	m.awaitRefusal(t)
}

// unasked returns what a silent client receives on a connection through the client's sidecar, or why the connection
// ended; "": nothing for a while.
func (m *mutual) unasked(port int) string {
	m.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(m.t.Context(), "tcp", fmt.Sprintf("%s:%d", m.client.ip, port))
	require.NoError(m.t, err)
	defer conn.Close()
	require.NoError(m.t, conn.SetReadDeadline(time.Now().Add(time.Second)))
	text, err := bufio.NewReader(conn).ReadString('\n')
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "nothing"
	case err != nil:
		return err.Error()
	}
	return text
}
