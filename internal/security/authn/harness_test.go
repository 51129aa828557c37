package authn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// issuer signs certificates.
type issuer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{pool: x509.NewCertPool()}
	i.cert, i.key = i.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * time.Hour), KeyUsage: x509.KeyUsageCertSign})
	i.pool.AddCert(i.cert)
	return i
}

func (i *issuer) sign(t *testing.T, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	parent, by := i.cert, i.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
	require.NoError(t, err)
	out, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return out, key
}

// leaf returns the chain of a workload with ids.
func (i *issuer) leaf(t *testing.T, ids ...string) []*x509.Certificate {
	t.Helper()
	c := &x509.Certificate{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, id := range ids {
		u, err := url.Parse(id)
		require.NoError(t, err)
		c.URIs = append(c.URIs, u)
	}
	out, _ := i.sign(t, c)
	return []*x509.Certificate{out}
}

// jwt returns a token with unverified claims.
func jwt(t *testing.T, claims map[string]any) string {
	t.Helper()
	b, err := json.Marshal(claims)
	require.NoError(t, err)
	return "e30." + base64.RawURLEncoding.EncodeToString(b) + ".c2ln"
}
