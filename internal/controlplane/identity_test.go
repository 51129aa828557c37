package controlplane

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	securityv1alpha1 "istio.io/api/security/v1alpha1"

	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/await"
)

// TestCertificates checks that workloads get certificates for themselves, by a token or by the previous
// certificate.
func TestCertificates(t *testing.T) { overEach(t, certificates) }

func certificates(t *testing.T, transport server.Transport) {
	p := startWithIdentities(t, transport)
	anonymous := p.dial()
	web := p.must("web-token")
	require.Equal(t, "spiffe://cluster.local/ns/shop/sa/web", web.Leaf.URIs[0].String())
	require.Empty(t, web.Leaf.DNSNames)
	renewed, err := p.ask(p.dial(web), "", nil)
	require.NoError(t, err, "the last certificate gets the next")
	require.Equal(t, web.Leaf.URIs, renewed.Leaf.URIs)

	_, err = p.ask(anonymous, "", nil)
	requireStatus(t, err, codes.Unauthenticated, "neither a certificate nor a token")
	_, err = p.ask(anonymous, "other-token", nil)
	requireStatus(t, err, codes.Unauthenticated, "unknown token")
	_, err = p.ask(anonymous, "web-token", func(q *securityv1alpha1.IstioCertificateRequest) { q.Csr = "x" })
	requireStatus(t, err, codes.InvalidArgument, "csr: not in PEM")
	_, err = p.ask(anonymous, "web-token", func(q *securityv1alpha1.IstioCertificateRequest) { q.ValidityDuration = 91 * 24 * 3600 })
	requireStatus(t, err, codes.InvalidArgument, "validity_duration", "2160h0m0s")
	_, err = p.ask(anonymous, "web-token", func(q *securityv1alpha1.IstioCertificateRequest) {
		q.Metadata, err = structpb.NewStruct(map[string]any{"ImpersonatedIdentity": "spiffe://cluster.local/ns/bank/sa/teller"})
		require.NoError(t, err)
	})
	requireStatus(t, err, codes.PermissionDenied, "another identity")

	plain, err := grpc.NewClient(p.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = plain.Close() }()
	_, err = p.ask(plain, "web-token", nil)
	requireStatus(t, err, codes.Unimplemented) // tokens do not go in plain text

	for path, want := range map[string][]string{
		"/debug/ca": {`"issued": 2`, "directory " + p.caDir},
		"/metrics": {"citadel_server_csr_count 7", "citadel_server_success_cert_issuance_count 2", "citadel_server_authentication_failure_count 2",
			"citadel_server_csr_parsing_err_count 3", "citadel_server_root_cert_expiry_timestamp 2"},
	} {
		resp, err := http.Get("http://" + p.http + path)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		for _, w := range want {
			require.Contains(t, string(body), w)
		}
	}
}

// TestNoCertificateBeforeTheTrustDomainIsKnown checks that workloads get certificates only when the configuration was read: an
// earlier one would be of the default trust domain.
func TestNoCertificateBeforeTheTrustDomainIsKnown(t *testing.T) { overEach(t, trustDomainIsKnown) }

func trustDomainIsKnown(t *testing.T, transport server.Transport) {
	const meshYAML = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: 'trustDomain: prod'}\n"
	var policy string
	p := startIdentities(t, filepath.Join(t.TempDir(), "ca"), func(o *Options) {
		o.Transport = transport
		require.NoError(t, os.WriteFile(filepath.Join(o.ConfigDir, "mesh.yaml"), []byte(meshYAML), 0o600))
		policy = filepath.Join(o.ConfigDir, "policy.yaml")
		require.NoError(t, os.WriteFile(policy, []byte("kind: AuthorizationPolicy\nspec: {\n"), 0o600)) // nothing is served with this
	})
	type result struct {
		cert *tls.Certificate
		err  error
	}
	answers := make(chan result, 1)
	go func() {
		c, err := p.ask(p.dial(), "web-token", nil)
		answers <- result{c, err}
	}()
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + p.http + "/metrics")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(b), "citadel_server_csr_count 1")
	}, time.Minute, 10*time.Millisecond, "the request has arrived")
	require.NoError(t, os.Remove(policy))
	a := await.From(t, answers)
	require.NoError(t, a.err)
	require.Equal(t, "spiffe://prod/ns/shop/sa/web", a.cert.Leaf.URIs[0].String())
}

// TestConfigurationByCertificate checks that a proxy can only be what its certificate says.
func TestConfigurationByCertificate(t *testing.T) { overEach(t, configurationByCertificate) }

func configurationByCertificate(t *testing.T, transport server.Transport) {
	p := startWithIdentities(t, transport)
	web := p.dial(p.must("web-token"))
	require.NoError(t, p.proxy(web, "shop", "web"))
	require.NoError(t, p.proxy(web, "shop", ""))
	requireStatus(t, p.proxy(web, "bank", ""), codes.PermissionDenied, `"shop"`, `"bank"`)
	requireStatus(t, p.proxy(web, "shop", "cart"), codes.PermissionDenied, `"web"`, `"cart"`)
	requireStatus(t, p.proxy(p.dial(), "shop", "web"), codes.Unauthenticated, "the client has no certificate")

	other := startWithIdentities(t, transport)
	requireStatus(t, p.proxy(p.dial(other.must("web-token")), "shop", "web"), codes.Unavailable) // the handshake fails
	expired, err := p.ask(p.dial(), "web-token", func(q *securityv1alpha1.IstioCertificateRequest) { q.ValidityDuration = 1 })
	require.NoError(t, err)
	early := p.dial(expired)
	require.Eventually(t, func() bool { return time.Now().After(expired.Leaf.NotAfter.Add(time.Second)) }, time.Minute, 10*time.Millisecond)
	requireStatus(t, p.proxy(early, "shop", "web"), codes.Unavailable)
	_, err = p.ask(early, "", nil)
	requireStatus(t, err, codes.Unavailable)
}

// TestPodsOfOtherServiceAccounts checks that a workload cannot connect as a Pod of another service account
// in its namespace, by its node ID or by its metadata.
func TestPodsOfOtherServiceAccounts(t *testing.T) { overEach(t, podsOfOtherServiceAccounts) }

func podsOfOtherServiceAccounts(t *testing.T, transport server.Transport) {
	p := startWithIdentities(t, transport)
	require.NoError(t, p.proxyNamed(p.dial(p.must("cart-token")), "cart-1.shop", "cart", ""))
	web := p.dial(p.must("web-token"))
	refused := []string{"shop/web may not be the proxy", "the service account of Pod/shop/cart-1 is shop/cart"}
	requireStatus(t, p.proxyNamed(web, "cart-1.shop", "web", ""), codes.PermissionDenied, refused...)
	requireStatus(t, p.proxyNamed(web, "cart-1.shop", "", "web-1"), codes.PermissionDenied, refused...)
	requireStatus(t, p.proxyNamed(web, "web-1.shop", "", "cart-1"), codes.PermissionDenied, refused...)
}

// TestCertificateExpiresOnAConnection checks that a connection cannot request anything new after its
// certificate has expired.
func TestCertificateExpiresOnAConnection(t *testing.T) { overEach(t, expiresOnAConnection) }

func expiresOnAConnection(t *testing.T, transport server.Transport) {
	p := startWithIdentities(t, transport)
	short, err := p.ask(p.dial(), "web-token", func(q *securityv1alpha1.IstioCertificateRequest) { q.ValidityDuration = 600 })
	require.NoError(t, err)
	conn := p.dial(short)
	_, err = p.ask(conn, "", nil)
	require.NoError(t, err)

	fresh := filepath.Join(t.TempDir(), "ca")
	replaced := startWithIdentities(t, transport)
	require.NoError(t, os.Rename(replaced.caDir, fresh))
	for _, name := range []string{"root-cert.pem", "ca-cert.pem", "ca-key.pem"} {
		b, err := os.ReadFile(filepath.Join(fresh, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(p.caDir, name), b, 0o600))
	}
	require.Eventually(t, func() bool {
		_, err = p.ask(conn, "", nil)
		return status.Code(err) == codes.Unauthenticated
	}, time.Minute, 10*time.Millisecond)
	requireStatus(t, err, codes.Unauthenticated, "unknown authority")
	p.trust()
	require.NoError(t, p.proxy(p.dial(p.must("web-token")), "shop", "web"), "new ones are believed, without a restart")
}

// TestDeregisterByCertificate checks that workloads may deregister themselves only.
func TestDeregisterByCertificate(t *testing.T) { overEach(t, leaveByCertificate) }

func leaveByCertificate(t *testing.T, transport server.Transport) {
	p := startWithIdentities(t, transport)
	web, cart, teller := p.dial(p.must("web-token")), p.dial(p.must("cart-token")), p.dial(p.must("teller-token"))
	require.NoError(t, p.proxy(web, "shop", ""), "the configuration has been read")
	leave := func(conn *grpc.ClientConn, node string, more ...string) error {
		q := agentapi.DeregisterRequest{Node: node, Addresses: more, WaitMillis: 10_000}
		return conn.Invoke(t.Context(), agentapi.DeregisterMethod, &q, &agentapi.DeregisterResponse{}, grpc.ForceCodec(jsonCodec{}))
	}
	const cart1 = "sidecar~10.1.1.1~cart-1.shop~shop.svc.cluster.local"
	requireStatus(t, leave(p.dial(), cart1), codes.Unauthenticated)
	plain, err := grpc.NewClient(p.xds, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = plain.Close() })
	requireStatus(t, leave(plain, cart1), codes.PermissionDenied, "deregistrations: only with TLS")
	requireStatus(t, leave(teller, cart1), codes.PermissionDenied, `"bank"`, `"shop"`)
	requireStatus(t, leave(web, cart1), codes.PermissionDenied, "shop/cart")
	requireStatus(t, leave(web, "sidecar~10.1.1.1~web-1.shop~shop.svc.cluster.local"), codes.PermissionDenied, "shop/cart")
	requireStatus(t, leave(cart, cart1, "10.1.1.9"), codes.PermissionDenied, "bank/teller")
	requireStatus(t, leave(cart, cart1, "10.9.9.9"), codes.PermissionDenied, "10.9.9.9", "safe")
	require.NoError(t, leave(cart, cart1))
}
