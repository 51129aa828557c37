package e2e

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
)

func peerAuthentication(mode string) string {
	return fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: shop}
spec: {mtls: {mode: %s}}`, mode)
}

func clientTLS(mode string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: server, namespace: shop}
spec: {host: server, trafficPolicy: {tls: {mode: %s}}}`, mode)
}

// TestMutualTLS checks what each mode lets in, and how callers connect.
func TestMutualTLS(t *testing.T) {
	m := startMutual(t)
	client := spiffeID("client")

	m.requireMutual(client)
	plain := func() (int, string) { return m.directly(memberHTTP) }
	m.requireStatus(http.StatusOK, "plain text is let in, too", plain)
	require.Empty(t, m.peer())
	require.Equal(t, "welcome\n", m.line(m.server.ip, memberTCP))
	m.requireHeaders()
	m.requireCase()
	status, body := m.call("plain", serviceHTTP)
	require.Equal(t, "200 plain-v1", fmt.Sprint(status, " ", body), "who has no sidecar gets plain text")

	m.apply(m.config("server", peerAuthentication("STRICT"))...)
	m.requireMutual(client)
	m.requireStrict()
	m.requireVersions(client)

	m.apply(m.config("server", peerAuthentication("PERMISSIVE"))...)
	m.requireMutual(client)
	m.requireStatus(http.StatusOK, "plain text is let in again", plain)

	m.apply(m.config("server", peerAuthentication("STRICT"), portsOfServer)...)
	m.requirePorts(plain)

	secure := func() (int, string) { return m.call("server", serviceHTTP) }
	m.apply(m.config("server", peerAuthentication("STRICT"), clientTLS("DISABLE"))...)
	m.requireStatus(http.StatusServiceUnavailable, "the client speaks plain text as configured", secure)

	m.apply(m.config("server", peerAuthentication("STRICT"), clientTLS("ISTIO_MUTUAL"))...)
	m.requireMutual(client)

	m.apply(m.config("another", peerAuthentication("STRICT"))...)
	m.requireStatus(http.StatusServiceUnavailable, "the server has another identity than the client expects", secure)

	m.apply(m.config("server", peerAuthentication("DISABLE"))...)
	eventually(t, "callers know that mutual TLS is off", func() bool {
		status, _ := secure()
		return status == http.StatusOK && m.peer() == ""
	}, m.peer)
	m.requireNothingHeld()
}

// portsOfServer has the modes of some of its ports; the others use that of the namespace.
var portsOfServer = fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: server, namespace: shop}
spec:
  selector: {matchLabels: {app: server}}
  portLevelMtls: {%d: {mode: DISABLE}, %d: {mode: PERMISSIVE}}`, memberTCP, memberAuto)

// requirePorts checks that each port lets in what its mode permits, and that callers follow it.
func (m *mutual) requirePorts(plain func() (int, string)) {
	m.t.Helper()
	m.requireStatus(0, "the port of HTTP is as the namespace says", plain)
	m.requireStatus(http.StatusOK, "a PERMISSIVE port lets in plain text", func() (int, string) { return m.directly(memberAuto) })
	for _, address := range []string{m.server.ip, m.client.ip} {
		port := map[string]int{m.server.ip: memberTCP, m.client.ip: serviceTCP}[address]
		eventually(m.t, "bytes at the port that is switched off", func() bool { return m.line(address, port) == "welcome\n" }, nil)
	}
}

// requireVersions checks that old versions of TLS are accepted until the mesh's configuration forbids them, and with
// which cipher suites.
func (m *mutual) requireVersions(client string) {
	m.t.Helper()
	old := func(suite uint16) error {
		_, err := m.handshakeBy(&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite}}, m.pair(m.root, client))
		return err
	}
	const usual, other = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
	mesh := func(said string) {
		m.apply(m.config("server", peerAuthentication("STRICT"), fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "meshMTLS: {%s}"}`, said))...)
	}
	require.NoError(m.t, old(usual))
	mesh("cipherSuites: [ECDHE-ECDSA-AES256-GCM-SHA384, NULL-SHA]")
	eventually(m.t, "another cipher suite is taken no more", func() bool { return old(usual) != nil }, nil)
	require.NoError(m.t, old(other))
	m.requireMutual(client)
	mesh("minProtocolVersion: TLSV1_3")
	eventually(m.t, "TLS 1.2 is taken no more", func() bool { return old(other) != nil }, nil)
	require.Error(m.t, old(usual))
	m.requireMutual(client)
}

// requireStatus waits until a call has a status: Envoys ACK before the new configuration is in use.
func (m *mutual) requireStatus(want int, why string, call func() (int, string)) {
	m.t.Helper()
	got := ""
	eventually(m.t, why, func() bool {
		status, body := call()
		got = fmt.Sprint(status, " ", body)
		return status == want
	}, func() string { return got })
}

// requireMutual waits until the client reaches the server with mutual TLS on each port.
func (m *mutual) requireMutual(client string) {
	m.t.Helper()
	for _, port := range []int{serviceHTTP, serviceAuto} {
		got := ""
		eventually(m.t, fmt.Sprintf("mutual TLS on %d", port), func() bool {
			status, body := m.call("server", port)
			got = fmt.Sprint(status, " ", body)
			return got == "200 server-v1" && m.peer() == client
		}, func() string { return got })
	}
	eventually(m.t, "bytes by mutual TLS", func() bool { return m.line(m.client.ip, serviceTCP) == "welcome\n" }, nil)
	m.requireUpgrade()
}

// requireUpgrade checks that upgrades get through with any protocol between the sidecars.
func (m *mutual) requireUpgrade() {
	m.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(m.t.Context(), "tcp", fmt.Sprintf("%s:%d", m.client.ip, serviceHTTP))
	require.NoError(m.t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: server\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello\n")
	require.NoError(m.t, err)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	require.NoError(m.t, err)
	defer resp.Body.Close()
	require.Equal(m.t, http.StatusSwitchingProtocols, resp.StatusCode)
	line, err := in.ReadString('\n')
	require.NoError(m.t, err)
	require.Equal(m.t, "hello\n", line)
}

// requireStrict checks who is refused.
func (m *mutual) requireStrict() {
	m.t.Helper()
	for _, port := range []int{memberHTTP, memberAuto} {
		m.requireStatus(0, fmt.Sprintf("plain text at %d is refused", port), func() (int, string) { return m.directly(port) })
	}
	eventually(m.t, "bytes in plain text are not let in", func() bool { return m.line(m.server.ip, memberTCP) == "" }, nil)
	foreign, err := catest.NewRoot("mesh")
	require.NoError(m.t, err)
	for name, cert := range map[string]*tls.Certificate{
		"no certificate":               nil,
		"another mesh's":               m.pair(foreign, spiffeID("client")),
		"of another trust domain":      m.pair(m.root, "spiffe://other.org/ns/shop/sa/client"),
		"of one with a longer name":    m.pair(m.root, "spiffe://cluster.local.org/ns/shop/sa/client"),
		"the right one, but no SPIFFE": m.pair(m.root, "https://cluster.local/ns/shop/sa/client"),
	} {
		_, err := m.handshake(cert, "istio")
		require.Error(m.t, err, name)
	}
	status, err := m.handshake(m.pair(m.root, spiffeID("client")))
	require.NoError(m.t, err)
	require.Equal(m.t, http.StatusOK, status, "whatever it offers")
}

// TestUnprovenIdentityGetsNothing checks that a workload that cannot prove its identity gets neither a certificate nor
// configuration, while the rest of the mesh works.
func TestUnprovenIdentityGetsNothing(t *testing.T) {
	m := startMutual(t)
	n, _ := m.client.configured(t)
	require.NotZero(t, n)
	for name, tc := range map[string]struct {
		token  string
		change func(*agent.Config)
		says   string
	}{
		"unknown token":    {"other", func(*agent.Config) {}, "unknown token"},
		"token of another": {"client-token", func(*agent.Config) {}, "correct --token-file, --namespace or --service-account"},
		"certificate wanted for another namespace": {"client-token", func(c *agent.Config) {
			c.Workload.Namespace, c.Workload.ServiceAccount = "bank", "client"
		}, "correct --token-file, --namespace or --service-account"},
		"another namespace in the node": {"client-token", func(c *agent.Config) {
			c.Workload.ServiceAccount, c.Metadata = "client", map[string]any{"NAMESPACE": "bank"}
		}, "may not be the proxy"},
		"another account in the node": {"client-token", func(c *agent.Config) {
			c.Workload.ServiceAccount, c.Metadata = "client", map[string]any{"SERVICE_ACCOUNT": "server"}
		}, "may not be the proxy"},
		"roots of another authority": {"client-token", func(c *agent.Config) {
			foreign, err := catest.NewRoot("mesh")
			require.NoError(t, err)
			c.Workload.ServiceAccount, c.XDS.RootCert = "client", fileWith(t, "root.pem", foreign.PEM())
		}, "x509: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newMember("intruder")
			c := w.config(t, m, tc.token)
			tc.change(&c)
			w.run(t, c)
			eventually(t, "the intruder is refused", func() bool {
				_, ok := w.configured(t)
				return ok && strings.Contains(w.log.String(), tc.says)
			}, w.log.String)
			n, _ := w.configured(t)
			require.Zero(t, n)
			require.NotContains(t, w.log.String(), "sidecar ready")
			require.Nil(t, m.proxy("intruder"))
		})
	}
	m.requireMutual(spiffeID("client"))
	m.requireNothingHeld()
}
