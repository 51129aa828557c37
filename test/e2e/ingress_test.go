package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
)

// memberTLS is the port of the server's sidecar for TLS of clients without a sidecar.
const memberTLS = 18443

// withIngressTLS is the mesh with a listener of the server's sidecar that terminates TLS. It requires client
// certificates of an authority in a Secret.
func (m *mutual) withIngressTLS(secret string) []string {
	listener := fmt.Sprintf(`  - port: {number: %d, name: https, protocol: HTTPS}
    captureMode: NONE
    defaultEndpoint: "0.0.0.0:%d"
    tls: {mode: MUTUAL, credentialName: web}
  egress:`, memberTLS, memberHTTPApp)
	out := m.config("server", secret, fmt.Sprintf(`apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: server, namespace: shop}
spec: {selector: {matchLabels: {app: server}}, portLevelMtls: {%d: {mode: DISABLE}}}`, memberTLS))
	own := m.server.documents("server")
	for i := range out {
		out[i] = strings.Replace(out[i], own, strings.Replace(own, "  egress:", listener, 1), 1)
	}
	return out
}

// callIngress calls the server's listener with a certificate; nil: without.
func (m *mutual) callIngress(root *catest.Root, cert *tls.Certificate) fromOutside {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, fmt.Sprintf("https://%s:%d/", m.server.ip, memberTLS), http.NoBody)
	require.NoError(m.t, err)
	req.Host, req.Close = webHost, true
	req.Header.Set("X-Forwarded-Client-Cert", "URI="+spiffeID("client")) // a client can claim anything
	config := &tls.Config{ServerName: webHost, RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AddCert(root.Cert)
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	resp, err := (&http.Client{Timeout: callLimit, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return fromOutside{err: err}
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return fromOutside{status: resp.StatusCode, by: resp.TLS.PeerCertificates[0].URIs[0].String(), err: err}
}

// TestIngressTLS checks that a sidecar terminates TLS of clients without a sidecar, with the certificate of a Secret,
// at a port where mutual TLS is disabled.
func TestIngressTLS(t *testing.T) {
	m := startMutual(t)
	outside, err := catest.NewRoot("outside")
	require.NoError(t, err)
	client := m.pair(outside, "spiffe://outside/client")

	m.apply(m.withIngressTLS(webSecret(t, outside, "shop", "one"))...)
	var got fromOutside
	eventually(t, "the listener answers", func() bool { // Envoy ACKs it before it has its secrets
		got = m.callIngress(outside, client)
		return got.status == http.StatusOK
	}, func() string { return fmt.Sprint(got.err) + m.server.log.String() })
	require.NoError(t, got.err)
	require.Equal(t, "spiffe://outside/one", got.by)
	require.Equal(t, "spiffe://outside/client", m.peer())
	require.NotContains(t, m.server.backend.last(t).header.Get("X-Forwarded-Client-Cert"), spiffeID("client"), "what clients say of themselves is not believed")
	require.Error(t, m.callIngress(outside, nil).err, "it asks for a certificate")
	require.Error(t, m.callIngress(outside, m.pair(m.root, spiffeID("client"))).err, "it asks for one of its CA")
	status, _ := m.directly(memberTLS)
	require.NotEqual(t, http.StatusOK, status, "plain text is refused")
	m.requireMutual(spiffeID("client"))

	m.apply(m.withIngressTLS(webSecret(t, outside, "shop", "two"))...)
	eventually(t, "the new certificate is shown", func() bool {
		return m.callIngress(outside, client).by == "spiffe://outside/two"
	}, func() string { return m.server.log.String() })

	m.requireRevocation(outside, client)

	others, err := catest.NewRoot("others")
	require.NoError(t, err)
	other := m.pair(others, "spiffe://others/client")
	require.Error(t, m.callIngress(outside, other).err)
	documents := m.withIngressTLS(webSecret(t, outside, "shop", "two"))
	for i := range documents {
		documents[i] = strings.Replace(documents[i], "credentialName: web}", "credentialName: web, caCertCredentialName: 'configmap://trust/clients'}", 1)
	}
	m.apply(append(documents, authorities("trust", "clients", others))...)
	eventually(t, "clients are those of the ConfigMap's CA", func() bool {
		return m.callIngress(outside, other).status == http.StatusOK && m.callIngress(outside, client).err != nil
	}, func() string { return m.server.log.String() })
	m.apply(append(documents, authorities("trust", "clients", outside))...)
	eventually(t, "they are those of another CA", func() bool {
		return m.callIngress(outside, client).status == http.StatusOK && m.callIngress(outside, other).err != nil
	}, func() string { return m.server.log.String() })
	m.requireNothingHeld()
}

// requireRevocation checks that clients on the revocation list of a Secret are refused. An invalid list must change
// nothing, and reach no Envoy.
func (m *mutual) requireRevocation(root *catest.Root, client *tls.Certificate) {
	m.t.Helper()
	list, err := root.Revoked(client)
	require.NoError(m.t, err)
	secret, other := webSecret(m.t, root, "shop", "two"), m.pair(root, "spiffe://outside/other")
	give := func(crl []byte) {
		m.apply(m.withIngressTLS(strings.Replace(secret, "\ndata: {", "\ndata: {ca.crl: "+base64.StdEncoding.EncodeToString(crl)+", ", 1))...)
	}
	give(list)
	eventually(m.t, "the client's certificate is revoked", func() bool { return m.callIngress(root, client).err != nil }, func() string { return m.server.log.String() })
	require.Equal(m.t, http.StatusOK, m.callIngress(root, other).status)
	give([]byte("-----BEGIN X509 CRL-----\nMA==\n-----END X509 CRL-----\n"))
	m.requireNothingHeld()
	require.Error(m.t, m.callIngress(root, client).err)
	require.Equal(m.t, http.StatusOK, m.callIngress(root, other).status)
	m.apply(m.withIngressTLS(secret)...)
	eventually(m.t, "nothing is revoked", func() bool { return m.callIngress(root, client).status == http.StatusOK }, func() string { return m.server.log.String() })
}

// authorities is a ConfigMap with the certificate of an authority.
func authorities(namespace, name string, root *catest.Root) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {ca.crt: %q}", name, namespace, root.PEM())
}
