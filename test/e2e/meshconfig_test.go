package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// meshConfig is the mesh's configuration, in flow style.
func meshConfig(said string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: %q}", said)
}

// requireHeaders checks that sidecars set the headers of the mesh's proxyHeaders, and no others.
func (m *mutual) requireHeaders() {
	m.t.Helper()
	in, out := m.spoken()
	require.Contains(m.t, in.Get("X-Forwarded-Client-Cert"), "Subject=")
	require.NotContains(m.t, in.Get("X-Forwarded-Client-Cert"), "Cert=")
	for _, name := range []string{"X-Request-Id", "X-Envoy-Attempt-Count"} {
		require.NotEmpty(m.t, in.Get(name), name)
	}
	require.Empty(m.t, in.Get("X-Forwarded-Port"))
	require.NotEmpty(m.t, out.Get("X-Envoy-Upstream-Service-Time"))
	require.Equal(m.t, "envoy", out.Get("Server"), "the caller's")

	m.apply(m.config("server", meshConfig(`defaultConfig: {proxyHeaders: {server: {value: web}, setCurrentClientCertDetails: {subject: false, cert: true},
  requestId: {disabled: true}, attemptCount: {disabled: true}, envoyDebugHeaders: {disabled: true}, xForwardedPort: {enabled: true}}}`))...)
	eventually(m.t, "headers are as the mesh says", func() bool { // the server's, when the connection between the two is gone
		in, out = m.spoken()
		return out.Get("Server") == "web" && strings.Contains(in.Get("X-Forwarded-Client-Cert"), "Cert=")
	}, func() string { return fmt.Sprint(in, out) })
	require.NotEmpty(m.t, in.Get("X-Forwarded-Port"))
	require.Equal(m.t, spiffeID("client"), m.peer())
	require.NotContains(m.t, in.Get("X-Forwarded-Client-Cert"), "Subject=")
	for name := range in {
		require.False(m.t, name == "X-Request-Id" || strings.HasPrefix(name, "X-Envoy-"), name)
	}
	for name := range out {
		require.False(m.t, strings.HasPrefix(name, "X-Envoy-"), name)
	}

	m.apply(m.config("server", meshConfig("defaultConfig: {proxyHeaders: {forwardedClientCert: SANITIZE}}"))...)
	eventually(m.t, "applications receive no certificate", func() bool {
		in, _ = m.spoken()
		return in.Get("X-Forwarded-Client-Cert") == ""
	}, func() string { return fmt.Sprint(in) })
}

// requireCase checks that names of headers reach the application and its caller as they were written, through two
// sidecars that use HTTP/2 between them by default, and that the application receives the host that a route replaced.
func (m *mutual) requireCase() {
	m.t.Helper()
	rewrite := routes("server", "{rewrite: {authority: other.example.com}, route: [{destination: {host: server}}]}")
	m.apply(m.config("server", rewrite)...)
	reply := ""
	eventually(m.t, "the host is another one", func() bool {
		reply = m.raw("X-KeyOf: 1\r\nX-Name: X-ReplyOf\r\n")
		return m.server.backend.last(m.t).host == "other.example.com"
	}, func() string { return reply })
	require.Empty(m.t, m.server.backend.last(m.t).header.Get("X-Forwarded-Host"))
	require.Contains(m.t, m.server.heard.said(), "x-keyof: 1\r\n")
	require.Contains(m.t, reply, "x-replyof: server\r\n")

	m.apply(m.config("server", rewrite, meshConfig("defaultConfig: {proxyHeaders: {preserveHttp1HeaderCase: true, xForwardedHost: {enabled: true}}}"))...)
	eventually(m.t, "names of headers stay as they are", func() bool {
		reply = m.raw("X-KeyOf: 2\r\nX-Name: X-ReplyOf\r\n")
		return strings.Contains(m.server.heard.said(), "X-KeyOf: 2\r\n") && strings.Contains(reply, "X-ReplyOf: server\r\n")
	}, func() string { return reply + m.server.heard.said() })
	require.Equal(m.t, spiffeID("client"), m.peer())
	eventually(m.t, "the application receives the host", func() bool {
		m.raw("")
		return m.server.backend.last(m.t).header.Get("X-Forwarded-Host") == "server"
	}, nil)
}

// raw returns the response, byte for byte, to a request over mutual TLS with more headers, one a line.
func (m *mutual) raw(headers string) string {
	m.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(m.t.Context(), "tcp", fmt.Sprintf("%s:%d", m.client.ip, serviceHTTP))
	require.NoError(m.t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: server\r\nConnection: close\r\n"+headers+"\r\n")
	require.NoError(m.t, err)
	text, err := io.ReadAll(conn)
	require.NoError(m.t, err)
	return string(text)
}

// spoken returns the headers that the server's application receives over mutual TLS, and those that its caller
// receives.
func (m *mutual) spoken() (in, out http.Header) {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, fmt.Sprintf("http://%s:%d/", m.client.ip, serviceHTTP), http.NoBody)
	require.NoError(m.t, err)
	req.Host, req.Close = "server", true
	resp, err := (&http.Client{Timeout: callLimit}).Do(req)
	require.NoError(m.t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(m.t, err)
	require.Equal(m.t, http.StatusOK, resp.StatusCode)
	return m.server.backend.last(m.t).header, resp.Header
}

// requireTLSDefaults checks that a gateway whose server states no details of TLS uses those of the mesh.
func (e *edge) requireTLSDefaults() {
	e.t.Helper()
	const usual, other = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
	old := func(suite uint16) error {
		return e.hello(&tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite}})
	}
	curve := func(c tls.CurveID) error {
		return e.hello(&tls.Config{MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{c}})
	}
	mesh := func(said string) {
		e.apply(append(e.config("server", e.documents(), e.secret(e.t, "two")), meshConfig("tlsDefaults: {"+said+"}"))...)
	}
	require.NoError(e.t, old(usual))
	require.NoError(e.t, curve(tls.X25519))
	mesh("cipherSuites: [ECDHE-ECDSA-AES256-GCM-SHA384], ecdhCurves: [P-256]")
	eventually(e.t, "another cipher suite is taken no more", func() bool { return old(usual) != nil }, nil)
	require.NoError(e.t, old(other))
	require.Error(e.t, curve(tls.X25519), "nor is another curve")
	require.NoError(e.t, curve(tls.CurveP256))
	mesh("minProtocolVersion: TLSV1_3")
	eventually(e.t, "TLS 1.2 is taken no more", func() bool { return old(other) != nil }, nil)
	require.NoError(e.t, curve(tls.X25519))
}

// hello does a TLS handshake with the gateway.
func (e *edge) hello(config *tls.Config) error {
	config.ServerName, config.RootCAs = webHost, x509.NewCertPool()
	config.RootCAs.AddCert(e.outside.Cert)
	conn, err := (&tls.Dialer{Config: config}).DialContext(e.t.Context(), "tcp", fmt.Sprintf("%s:%d", e.gateway.ip, gatewayHTTPS))
	if err != nil {
		return err
	}
	return conn.Close()
}

// TestTLSDefaults checks that calls to servers outside of the mesh offer the mesh's TLS settings.
func TestTLSDefaults(t *testing.T) {
	b := startBehaviour(t)
	pair, err := certificate()
	require.NoError(t, err)
	var offered atomic.Pointer[tls.ClientHelloInfo]
	secure := startBackend(t, "offered", "v1", func(b *backend) {
		b.tls = &tls.Config{Certificates: []tls.Certificate{pair.tls}, MinVersion: tls.VersionTLS12,
			GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				offered.Store(h)
				return nil, nil
			}}
	})
	ca := fileWith(t, "ca.pem", pair.certPEM)
	rule := policy("offered", fmt.Sprintf("{tls: {mode: SIMPLE, caCertificates: %s, sni: localhost}}", ca))
	b.given(t, service("offered", &secure.app), rule)
	require.Equal(t, "offered-v1", b.call(t, "offered", "/").body)
	require.Contains(t, offered.Load().CipherSuites, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)
	require.Contains(t, offered.Load().SupportedCurves, tls.X25519)

	b.given(t, service("offered", &secure.app), rule,
		meshConfig("tlsDefaults: {cipherSuites: [ECDHE-ECDSA-AES256-GCM-SHA384], ecdhCurves: [P-256]}"))
	eventually(t, "calls offer the mesh's one curve", func() bool {
		require.Equal(t, "offered-v1", b.call(t, "offered", "/").body)
		return slices.Equal(offered.Load().SupportedCurves, []tls.CurveID{tls.CurveP256})
	}, func() string { return fmt.Sprint(offered.Load().SupportedCurves) })
	require.Contains(t, offered.Load().CipherSuites, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384)
	require.NotContains(t, offered.Load().CipherSuites, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)
	noRefusals(t, b.mesh, b.client)
}
