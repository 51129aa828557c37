package e2e

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"
)

// behindProxies is the mesh's configuration with two proxies in front of its gateways: one states its clients in
// X-Forwarded-For, the other with the PROXY protocol.
const behindProxies = `apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data:
  mesh: |
    defaultConfig:
      gatewayTopology: {numTrustedProxies: 1, forwardClientCertDetails: ALWAYS_FORWARD_ONLY, proxyProtocol: {}}`

// requireTopology checks that a gateway trusts the statements of the proxies before it exactly as configured.
func (e *edge) requireTopology() {
	e.t.Helper()
	e.apply(append(e.config("server", e.documents(), e.secret(e.t, "two")), behindProxies)...)
	eventually(e.t, "a connection without a PROXY header is rejected", func() bool {
		_, err := e.proxied("")
		return err != nil
	}, e.gateway.log.String)
	status, err := e.proxied("192.0.2.50")
	require.NoError(e.t, err)
	require.Equal(e.t, http.StatusOK, status)
	seen := e.server.backend.last(e.t).header
	require.Equal(e.t, "192.0.2.99, 192.0.2.98,192.0.2.50", seen.Get("X-Forwarded-For"))
	require.Equal(e.t, "192.0.2.98", seen.Get("X-Envoy-External-Address"), "the last one that the trusted proxy tells of")
	require.Contains(e.t, seen.Get("X-Forwarded-Client-Cert"), spiffeID("client"))
}

// proxied calls over TLS on a connection that a proxy makes for a client; "": it does not state the client.
func (e *edge) proxied(client string) (status int, err error) {
	e.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(e.t.Context(), "tcp", fmt.Sprintf("%s:%d", e.gateway.ip, gatewayHTTPS))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	require.NoError(e.t, conn.SetDeadline(time.Now().Add(callLimit)))
	if client != "" {
		_, err = fmt.Fprintf(conn, "PROXY TCP4 %s 192.0.2.1 1234 443\r\n", client)
		require.NoError(e.t, err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(e.outside.Cert)
	secure := tls.Client(conn, &tls.Config{ServerName: webHost, RootCAs: roots, MinVersion: tls.VersionTLS12})
	if err := secure.HandshakeContext(e.t.Context()); err != nil {
		return 0, err
	}
	_, err = io.WriteString(secure, "GET / HTTP/1.1\r\nHost: "+webHost+"\r\nConnection: close\r\n"+
		"X-Forwarded-For: 192.0.2.99, 192.0.2.98\r\nX-Forwarded-Client-Cert: URI="+spiffeID("client")+"\r\n\r\n")
	require.NoError(e.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(secure), nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}
