package e2e

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/moonsail/moonsail/internal/sidecar/agent/identity/catest"
)

const apiHost = "api.example.com"

// partner is a service outside of the mesh that requires client certificates of its authority.
type partner struct {
	root    *catest.Root
	backend *backend
	keys    []string // parts of keys, which must not be visible
}

func startPartner(t *testing.T) *partner {
	t.Helper()
	root, err := catest.NewRoot("partner")
	require.NoError(t, err)
	pair, err := root.Pair(time.Hour, nil, []string{apiHost})
	require.NoError(t, err)
	p := &partner{root: root}
	p.backend = startBackend(t, "api", "v1", func(b *backend) {
		b.tls = &tls.Config{Certificates: []tls.Certificate{*pair}, ClientCAs: x509.NewCertPool(), ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
		b.tls.ClientCAs.AddCert(root.Cert)
	})
	return p
}

// documents returns the partner as a service of the mesh, for calls of the client.
func (p *partner) documents() string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: shop}
spec:
  hosts: [%[1]s]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: %[2]d, name: http, protocol: HTTP, targetPort: %[3]d}]
  endpoints: [{address: %[4]s}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: api, namespace: shop}
spec:
  host: %[1]s
  workloadSelector: {matchLabels: {app: client}}
  trafficPolicy: {tls: {mode: MUTUAL, credentialName: api-client, sni: %[1]s, subjectAltNames: [%[1]s]}, connectionPool: {http: {maxRequestsPerConnection: 1}}}`,
		apiHost, serviceHTTP, p.backend.port, p.backend.ip)
}

// secret returns a Secret with a new certificate for a name.
func (p *partner) secret(t *testing.T, name string) string {
	t.Helper()
	pair, err := p.root.Pair(time.Hour, []string{"spiffe://partner/" + name}, nil)
	require.NoError(t, err)
	document, keyPEM := tlsSecret(t, p.root, pair, "shop", "api-client")
	p.keys = append(p.keys, strings.Split(string(keyPEM), "\n")[1], base64.StdEncoding.EncodeToString(keyPEM)[40:80])
	return document
}

// tlsSecret returns a Secret with a certificate, its key and the CA of its root. keyPEM is the key in it.
func tlsSecret(t *testing.T, root *catest.Root, pair *tls.Certificate, namespace, name string) (document string, keyPEM []byte) {
	t.Helper()
	cert, keyPEM := pemOf(t, pair)
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: %s, namespace: %s}
type: kubernetes.io/tls
data: {tls.crt: %s, tls.key: %s, ca.crt: %s}`, name, namespace, encode(cert), encode(keyPEM), encode(root.PEM())), keyPEM
}

// pemOf returns a certificate and its key.
func pemOf(t *testing.T, pair *tls.Certificate) (certificate, keyPEM []byte) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey.(*ecdsa.PrivateKey))
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
}

// TestCredentials checks that the client presents the certificate of the Secret that its rule names. A new certificate
// must not need a new cluster. Without the Secret the client must present none, and everything else must work.
func TestCredentials(t *testing.T) {
	m, p := startMutual(t), startPartner(t)
	m.apply(m.config("server", p.documents())...)
	m.requireStatus(http.StatusServiceUnavailable, "the Secret is missing, and nothing is sent without it", func() (int, string) { return m.call(apiHost, serviceHTTP) })
	require.Empty(t, p.backend.requests())
	m.requireMutual(spiffeID("client"))

	m.apply(m.config("server", p.documents(), p.secret(t, "one"))...)
	m.requirePartner(t, p, "one")
	version, taken := m.clusterVersion(), m.clustersTaken(t)

	m.apply(m.config("server", p.documents(), p.secret(t, "two"))...)
	eventually(t, "the new certificate is shown", func() bool {
		status, _ := m.call(apiHost, serviceHTTP)
		return status == http.StatusOK && p.caller(t) == "two"
	}, func() string { return p.caller(t) })
	require.Equal(t, version, m.clusterVersion())
	require.Equal(t, taken, m.clustersTaken(t), "Envoy was given no cluster again")
	m.requireNothingHeld()
	m.requireUnseen(t, p)
}

// caller returns the name in the last caller's certificate.
func (p *partner) caller(t *testing.T) string {
	t.Helper()
	return strings.TrimPrefix(p.backend.last(t).peer, "spiffe://partner/")
}

func (m *mutual) requirePartner(t *testing.T, p *partner, name string) {
	t.Helper()
	eventually(t, "the partner answers", func() bool {
		status, _ := m.call(apiHost, serviceHTTP)
		return status == http.StatusOK
	}, func() string { return m.client.log.String() })
	require.Equal(t, name, p.caller(t))
	require.Equal(t, apiHost, p.backend.last(t).sni)
}

// clusterVersion returns the version of the partner's cluster in the control plane.
func (m *mutual) clusterVersion() string {
	m.t.Helper()
	var answer struct {
		Resources []struct{ Name, Version string }
	}
	m.get("/debug/proxies/client.shop/config/clusters", &answer)
	for _, r := range answer.Resources {
		if strings.HasSuffix(r.Name, apiHost) {
			return r.Version
		}
	}
	m.t.Fatal("unknown cluster")
	return ""
}

func (m *mutual) clustersTaken(t *testing.T) uint64 {
	t.Helper()
	stats, err := m.client.admin.Stats(t.Context(), "^cluster_manager.cluster_(added|modified)$")
	require.NoError(t, err)
	return stats["cluster_manager.cluster_added"] + stats["cluster_manager.cluster_modified"]
}

// requireUnseen checks that no key appears on debug pages, in logs and in dumps.
func (m *mutual) requireUnseen(t *testing.T, p *partner) {
	t.Helper()
	texts := map[string]string{"the control plane's log": m.log.String(), "the agent's log": m.client.log.String()}
	for _, page := range []string{
		"store/Secret/shop/api-client", "store/Secret", "proxies", "proxies/client.shop", "proxies/client.shop/config/all?full",
		"changes?n=100", "problems", "scopes", "explain/Secret/shop/api-client?all", "proxies/client.shop/envoy/config_dump",
	} {
		texts[page] = m.page(t, "/debug/"+page)
	}
	require.Contains(t, texts["store/Secret/shop/api-client"], "[redacted]")
	require.Contains(t, texts["proxies/client.shop/config/all?full"], "kubernetes://api-client-cacert")
	for where, text := range texts {
		for _, key := range p.keys {
			require.NotContains(t, text, key, where)
		}
	}
}

func (m *mutual) page(t *testing.T, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+m.http+path, http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}

// TestSecretNeedsCertificateOfItsNamespace checks that a proxy gets a Secret by name only with a certificate of
// the Secret's namespace, whatever its node metadata claims.
func TestSecretNeedsCertificateOfItsNamespace(t *testing.T) {
	m, p := startMutual(t), startPartner(t)
	m.apply(m.config("server", p.documents(), p.secret(t, "one"))...)
	own := m.credentials(m.pair(m.root, spiffeID("client")))
	foreign := m.credentials(m.pair(m.root, "spiffe://cluster.local/ns/bank/sa/client"))
	for name, tc := range map[string]struct {
		address, namespace, ask string
		by                      credentials.TransportCredentials
		gets                    bool
	}{
		"the client": {m.secure, "shop", "kubernetes://api-client", own, true},
		"the client, for a Secret that no rule names": {m.secure, "shop", "kubernetes://other", own, false},
		"one of another namespace":                    {m.secure, "bank", "kubernetes://api-client", foreign, false},
		"that one, with the Secret's namespace":       {m.secure, "bank", "kubernetes://shop/api-client", foreign, false},
		"one without a certificate":                   {m.xds, "shop", "kubernetes://api-client", insecure.NewCredentials(), false},
	} {
		t.Run(name, func(t *testing.T) {
			got := asking{"sidecar", tc.namespace, "client", map[string]any{"app": "client"}, tc.ask}.answer(t, tc.address, tc.by)
			if tc.gets {
				require.Len(t, got.Resources, 1)
				return
			}
			require.Empty(t, got.Resources)
			require.Equal(t, []string{tc.ask}, got.RemovedResources)
		})
	}
}

func (m *mutual) credentials(pair *tls.Certificate) credentials.TransportCredentials {
	roots := x509.NewCertPool()
	roots.AddCert(m.root.Cert)
	return credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{*pair}, RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12})
}
