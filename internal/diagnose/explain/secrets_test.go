package explain

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSecretsWithoutKeys checks names, validity and IDs of certificates, and that no key is shown.
func TestSecretsWithoutKeys(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	id, err := url.Parse("spiffe://cluster.local/ns/shop/sa/cart")
	require.NoError(t, err)
	until := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	c := &x509.Certificate{SerialNumber: big.NewInt(0xabc), Subject: pkix.Name{CommonName: "cart"}, URIs: []*url.URL{id},
		NotBefore: until.Add(-time.Hour), NotAfter: until, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	require.NoError(t, err)
	chain := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a, err := ParseDump([]byte(`{"configs":[{"dynamic_active_secrets":[
	 {"name":"default","version_info":"7","last_updated":"2029-01-01T00:00:00Z","secret":{"@type":"x","name":"default","tls_certificate":{"certificate_chain":{"inline_bytes":"` + chain + `"},"private_key":{"inline_bytes":"c2VjcmV0"}}}},
	 {"name":"ROOTCA","secret":{"validation_context":{"trusted_ca":{"inline_bytes":"` + chain + `"}}}},
	 {"name":"odd","secret":{"tls_certificate":{"certificate_chain":{"inline_string":"no certificate"}}}}],
	 "dynamic_warming_secrets":[{"name":"other"}]}]}`))
	require.NoError(t, err)
	list := a.Secrets()
	require.Len(t, list, 4)
	require.Equal(t, "default", list[0].Name)
	require.Equal(t, "certificate", list[0].Kind)
	require.Equal(t, "active", list[0].State)
	require.Equal(t, []Certificate{{IDs: []string{id.String()}, Subject: "CN=cart", Issuer: "CN=cart", Serial: "abc", NotBefore: until.Add(-time.Hour), NotAfter: until, CA: true,
		SHA256: fmt.Sprintf("%x", sha256.Sum256(der))}}, list[0].Certificates)
	require.Equal(t, "roots", list[1].Kind)
	require.Len(t, list[1].Certificates, 1)
	require.Empty(t, list[2].Certificates)
	require.Equal(t, Secret{Name: "other", State: "warming", Kind: "other"}, list[3])
	text, err := json.Marshal(list)
	require.NoError(t, err)
	require.NotContains(t, string(text), "c2VjcmV0")
}
