package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	securityv1alpha1 "istio.io/api/security/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/kubetest"
)

// issuing starts control planes at the same time with the rights of the shipped manifests, and returns where they issue
// certificates.
func issuing(t *testing.T, c *kubetest.Cluster, count int, more ...func(*controlplane.Options)) []string {
	t.Helper()
	rights, err := os.ReadFile(filepath.Join("..", "..", "deploy", "rbac.yaml"))
	require.NoError(t, err)
	c.Apply(t, "", string(rights))
	addrs := make(chan string, count)
	for range count {
		go func() {
			addr, own := "", make(chan string, 1)
			defer func() { addrs <- addr }()
			runControl(t, c, func(o *controlplane.Options) {
				o.Status = false
				o.Kubernetes.Kubeconfig = c.KubeconfigAs(t, "istio-system", "moonsail")
				o.Identity = controlplane.Identity{
					Addr: "127.0.0.1:0", ReadEvery: 100 * time.Millisecond,
					Listening: func(a net.Addr) { own <- a.String() },
				}
				for _, change := range more {
					change(o)
				}
			})
			addr = await.From(t, own)
		}()
	}
	var out []string
	for range count {
		out = append(out, await.From(t, addrs))
	}
	require.NotContains(t, out, "")
	return out
}

// rootsOf waits until a namespace has the roots.
func rootsOf(t *testing.T, c *kubetest.Cluster, ns string) string {
	t.Helper()
	var roots string
	c.Eventually(t, "roots in namespace "+ns, func(ctx context.Context) error {
		m, err := c.Client.CoreV1().ConfigMaps(ns).Get(ctx, kube.RootCertName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if roots = m.Data[kube.RootCertKey]; roots == "" {
			return errors.New("it is empty")
		}
		return nil
	})
	return roots
}

func poolOf(t *testing.T, roots string) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM([]byte(roots)))
	return pool
}

// tokenOf requests a token of a service account for an audience from the API server.
func tokenOf(t *testing.T, c *kubetest.Cluster, ns, account string, audiences ...string) string {
	t.Helper()
	r, err := c.Client.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return r.Status.Token
}

// certificate requests a certificate from a control plane.
func certificate(t *testing.T, addr string, roots *x509.CertPool, token string) (*x509.Certificate, error) {
	t.Helper()
	c, err := keyAndCertificate(t, addr, roots, token)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(c.Certificate[0])
}

// keyAndCertificate is certificate with the key.
func keyAndCertificate(t *testing.T, addr string, roots *x509.CertPool, token string) (*tls.Certificate, error) {
	t.Helper()
	return certificateOver(t, dialIstiod(t, addr, roots), token)
}

// certificateOver is certificate over an existing connection.
func certificateOver(t *testing.T, conn *grpc.ClientConn, token string) (*tls.Certificate, error) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	require.NoError(t, err)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	a, err := securityv1alpha1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &securityv1alpha1.IstioCertificateRequest{
		Csr: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})),
	})
	if err != nil {
		return nil, err
	}
	out := &tls.Certificate{PrivateKey: key}
	for _, text := range a.CertChain {
		block, _ := pem.Decode([]byte(text))
		require.NotNil(t, block)
		out.Certificate = append(out.Certificate, block.Bytes)
	}
	return out, nil
}

// dialIstiod connects to a control plane by the name istiod, with TLS, until the test ends.
func dialIstiod(t *testing.T, addr string, roots *x509.CertPool, own ...tls.Certificate) *grpc.ClientConn {
	t.Helper()
	return dialNamed(t, addr, "istiod.istio-system.svc", roots, own...)
}

// dialNamed is dialIstiod with another name.
func dialNamed(t *testing.T, addr, name string, roots *x509.CertPool, own ...tls.Certificate) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(
		&tls.Config{RootCAs: roots, Certificates: own, ServerName: name, MinVersion: tls.VersionTLS12})))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

const accounts = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
`

// TestIdentities checks that two control planes that start at the same time use one root, write it into each namespace,
// and issue certificates to accounts that the API server confirms.
func TestIdentities(t *testing.T) {
	c := kubetest.Alone(t)
	ns := c.Namespace(t)
	c.Apply(t, ns, accounts)
	addrs := issuing(t, c, 2)

	own, err := c.Client.CoreV1().Secrets("istio-system").Get(t.Context(), "istio-ca-secret", metav1.GetOptions{})
	require.NoError(t, err)
	root := string(own.Data["root-cert.pem"])
	later := c.Namespace(t)
	for _, n := range []string{ns, later, "default", "istio-system"} {
		require.Equal(t, root, rootsOf(t, c, n), n)
	}

	roots, token := poolOf(t, root), tokenOf(t, c, ns, "web", "istio-ca")
	for _, addr := range addrs {
		cert, err := certificate(t, addr, roots, token)
		require.NoError(t, err)
		require.Len(t, cert.URIs, 1)
		require.Equal(t, fmt.Sprintf("spiffe://cluster.local/ns/%s/sa/web", ns), cert.URIs[0].String())
		_, err = cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		require.NoError(t, err)
	}
	requireRefused(t, c, addrs[0], roots, ns)
}

// requireRefused checks that some tokens get no certificate.
func requireRefused(t *testing.T, c *kubetest.Cluster, addr string, roots *x509.CertPool, ns string) {
	t.Helper()
	_, err := certificate(t, addr, roots, tokenOf(t, c, ns, "web", "vault"))
	require.Equal(t, codes.Unauthenticated, status.Code(err), err)
	require.ErrorContains(t, err, "the audience of the token is vault, not istio-ca")
	forged := []byte(tokenOf(t, c, ns, "web", "istio-ca"))
	forged[len(forged)-20] ^= 1 // in the signature
	_, err = certificate(t, addr, roots, string(forged))
	require.Equal(t, codes.Unauthenticated, status.Code(err), err)
}

// TestRootsAreRestored checks that changed or deleted roots are restored.
func TestRootsAreRestored(t *testing.T) {
	c := kubetest.Shared(t)
	ns := c.Namespace(t)
	issuing(t, c, 1)
	root, maps := rootsOf(t, c, ns), c.Client.CoreV1().ConfigMaps(ns)
	back := func(ctx context.Context) error {
		m, err := maps.Get(ctx, kube.RootCertName, metav1.GetOptions{})
		if err == nil && m.Data[kube.RootCertKey] != root {
			err = fmt.Errorf("it is %q", m.Data[kube.RootCertKey])
		}
		return err
	}
	m, err := maps.Get(t.Context(), kube.RootCertName, metav1.GetOptions{})
	require.NoError(t, err)
	m.Data[kube.RootCertKey] = "nonsense"
	_, err = maps.Update(t.Context(), m, metav1.UpdateOptions{})
	require.NoError(t, err)
	c.Eventually(t, "the roots in the place of nonsense", back)
	require.NoError(t, maps.Delete(t.Context(), kube.RootCertName, metav1.DeleteOptions{}))
	c.Eventually(t, "the roots anew", back)
}
