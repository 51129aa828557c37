package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/kubetest"
)

// signer is an operator's certificate authority.
type signer struct {
	cert         *x509.Certificate
	key          *ecdsa.PrivateKey
	pem, private []byte
}

// newSigner creates an authority that parent signs; nil: a root.
func newSigner(t *testing.T, name string, parent *signer) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	out := &signer{key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(240 * time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}}
	if parent == nil {
		parent = out
	}
	der, err := x509.CreateCertificate(rand.Reader, out.cert, parent.cert, key.Public(), parent.key)
	require.NoError(t, err)
	out.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	out.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	out.private = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	return out
}

// authority returns the state of a control plane's authority.
func authority(ctx context.Context, addr string) (*ca.State, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/debug/ca", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var page struct{ CA ca.State }
	return &page.CA, json.NewDecoder(resp.Body).Decode(&page)
}

// TestOperatorsAuthority checks that an operator's Secret cacerts takes precedence over the authority that Moonsail
// created. If it is deleted, the authority in force stays and a warning follows. A Secret in cert-manager's form
// replaces it while the control plane runs.
func TestOperatorsAuthority(t *testing.T) {
	c := kubetest.Alone(t)
	ns, secrets := c.Namespace(t), c.Client.CoreV1().Secrets("istio-system")
	c.Apply(t, ns, accounts)
	t.Run("made here", func(t *testing.T) { issuing(t, c, 1) })
	own, err := secrets.Get(t.Context(), "istio-ca-secret", metav1.GetOptions{})
	require.NoError(t, err)

	root := newSigner(t, "root", nil)
	one, two := newSigner(t, "one", root), newSigner(t, "two", root)
	put := func(typ corev1.SecretType, data map[string][]byte) {
		t.Helper()
		_, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "cacerts"}, Type: typ, Data: data}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	put(corev1.SecretTypeOpaque, map[string][]byte{ca.CertFile: one.pem, ca.KeyFile: one.private, ca.ChainFile: one.pem, ca.RootFile: root.pem})
	pages := make(chan string, 1)
	addr := issuing(t, c, 1, func(o *controlplane.Options) {
		listening := o.Listening
		o.HTTPAddr, o.Listening = "127.0.0.1:0", func(xds, http net.Addr) { pages <- http.String(); listening(xds, http) }
	})[0]
	page := await.From(t, pages)
	c.Eventually(t, "the operator's root in each namespace", func(context.Context) error {
		if got := rootsOf(t, c, ns); got != string(root.pem) {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
	signs := func(by *signer) error {
		cert, err := certificate(t, addr, poolOf(t, string(root.pem)), tokenOf(t, c, ns, "web", "istio-ca"))
		if err != nil {
			return err
		}
		return cert.CheckSignatureFrom(by.cert)
	}
	require.NoError(t, signs(one))

	require.NoError(t, secrets.Delete(t.Context(), "cacerts", metav1.DeleteOptions{}))
	says := func(problem string) func(context.Context) error {
		return func(ctx context.Context) error {
			s, err := authority(ctx, page)
			if err == nil && s.Problem != problem {
				err = fmt.Errorf("it says %q", s.Problem)
			}
			return err
		}
	}
	c.Eventually(t, "its removal is reported",
		says("secret istio-system/cacerts: deleted: restore it, or restart the control plane to continue without it"))
	require.NoError(t, signs(one), "what was good stays in force")
	require.Equal(t, string(root.pem), rootsOf(t, c, ns))

	put(corev1.SecretTypeTLS, map[string][]byte{"tls.crt": two.pem, "tls.key": two.private, "ca.crt": root.pem})
	c.Eventually(t, "the new one signs", func(context.Context) error { return signs(two) })
	c.Eventually(t, "nothing is wrong any more", says(""))
	after, err := secrets.Get(t.Context(), "istio-ca-secret", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, own.ResourceVersion, after.ResourceVersion, "the one that was made here is unchanged")
}
