package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
)

// TestIssue checks that a certificate has the key of the request and the identity of the caller, and nothing of the
// requested identity.
func TestIssue(t *testing.T) {
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	given, root := plugIn(t, nil)
	for name, key := range map[string]crypto.Signer{"P-256": ecKey(t), "P-384": p384, "RSA": rsaKey(t, 2048)} {
		for from, files := range map[string]Files{"own root": nil, "operator's": given} {
			t.Run(name+" "+from, func(t *testing.T) {
				place := &memory{}
				if files != nil {
					place.set(files)
				}
				a, before := open(t, Options{Store: place}), time.Now()
				got, err := a.Issue(request(t, key), web, 0)
				require.NoError(t, err)
				roots := rootsOf(a)
				leaf, err := verify(t, got.Chain, roots, time.Now())
				require.NoError(t, err)
				require.Equal(t, roots, got.Chain[len(got.Chain)-1], "the roots are the last element")
				if files != nil {
					require.Equal(t, string(root.pem()), roots)
					require.Len(t, got.Chain, 4)
				}
				require.True(t, leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }).Equal(key.Public()))
				require.Len(t, leaf.URIs, 1)
				require.Equal(t, "spiffe://cluster.local/ns/shop/sa/web", leaf.URIs[0].String())
				require.Empty(t, leaf.DNSNames)
				require.Empty(t, leaf.IPAddresses)
				require.Empty(t, leaf.Subject.String())
				require.False(t, leaf.IsCA)
				require.Equal(t, x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment, leaf.KeyUsage)
				require.WithinDuration(t, before.Add(-2*time.Minute), leaf.NotBefore, time.Minute)
				if files == nil {
					require.WithinDuration(t, before.Add(24*time.Hour), leaf.NotAfter, time.Minute)
				} else {
					require.Equal(t, a.ChainExpiry(), leaf.NotAfter, "it does not outlive what signs it")
				}
				require.GreaterOrEqual(t, leaf.SerialNumber.BitLen(), 64)
				require.EqualValues(t, 1, a.State().Issued)
			})
		}
	}
}

func TestTTL(t *testing.T) {
	a := open(t, Options{TTL: time.Hour, MaxTTL: 2 * time.Hour})
	csr := request(t, ecKey(t))
	for seconds, want := range map[int64]time.Duration{0: time.Hour, 60: time.Minute, 7200: 2 * time.Hour} {
		now := time.Now()
		got, err := a.Issue(csr, web, seconds)
		require.NoError(t, err)
		require.WithinDuration(t, now.Add(want), got.Certificate.NotAfter, 30*time.Second)
	}
	for seconds, says := range map[int64]string{7201: "exceeds the maximum of this authority: 7200 s (2h0m0s)", 1 << 62: "exceeds the maximum", -1: "in the past"} {
		_, err := a.Issue(csr, web, seconds)
		require.ErrorContains(t, err, says)
		require.True(t, isRequest(err))
	}
	_, err := Open(t.Context(), Options{Store: &memory{}, Log: quiet(), TTL: 3 * time.Hour, MaxTTL: 2 * time.Hour})
	require.ErrorContains(t, err, "exceeds the maximum")
}

func TestRequestsThatAreRefused(t *testing.T) {
	a := open(t, Options{})
	good := request(t, ecKey(t))
	_, small, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	t.Setenv("GODEBUG", "rsa1024min=0")
	block, _ := pem.Decode([]byte(good))
	broken := append([]byte(nil), block.Bytes...)
	broken[len(broken)-1] ^= 1 // of the signature
	stranger, _ := pem.Decode([]byte(request(t, ecKey(t))))
	for name, c := range map[string]struct{ csr, says string }{
		"empty":          {"", "not in PEM"},
		"garbage":        {"CERTIFICATE", "not in PEM"},
		"a certificate":  {encode(a.signer.Load().cert), `a "CERTIFICATE" instead of a CERTIFICATE REQUEST`},
		"no DER":         {string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: []byte("x")})), "csr: asn1"},
		"two":            {good + good, "data after the request"},
		"bad signature":  {string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: broken})), "not signed by its own key"},
		"other's key":    {string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: swapKey(t, block.Bytes, stranger.Bytes)})), "not signed by its own key"},
		"Ed25519":        {request(t, small), "Ed25519"},
		"RSA too small":  {request(t, rsaKey(t, 1024)), "invalid RSA key of 1024 bits: use 2048 to 8192"},
		"P-224":          {request(t, p224(t)), "unsupported curve P-224"},
		"too long":       {good + strings.Repeat(" ", maxRequest), "the limit is"},
		"text around it": {good + "x", "data after the request"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := a.Issue(c.csr, web, 0)
			require.ErrorContains(t, err, c.says)
			require.True(t, isRequest(err), "%v", err)
		})
	}
	_, err = a.Issue(good, model.Identity{TrustDomain: "cluster.local", Namespace: "shop"}, 0)
	require.ErrorContains(t, err, "service account is missing")
}

func p224(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	require.NoError(t, err)
	return key
}

// swapKey replaces the public key in a request. Both requests have the same form, so that the keys have the same
// offset.
func swapKey(t *testing.T, in, from []byte) []byte {
	t.Helper()
	a, err := x509.ParseCertificateRequest(in)
	require.NoError(t, err)
	b, err := x509.ParseCertificateRequest(from)
	require.NoError(t, err)
	out := strings.Replace(string(in), string(a.RawSubjectPublicKeyInfo), string(b.RawSubjectPublicKeyInfo), 1)
	require.NotEqual(t, string(in), out)
	return []byte(out)
}

// FuzzIssue checks that any request is refused, or results in a certificate of the caller.
func FuzzIssue(f *testing.F) {
	a := open(f, Options{})
	key := ecKey(f)
	f.Add([]byte(request(f, key)), int64(0))
	block, _ := pem.Decode([]byte(request(f, key)))
	f.Add(block.Bytes, int64(60))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"), int64(-1))
	f.Fuzz(func(t *testing.T, b []byte, seconds int64) {
		for _, csr := range []string{string(b), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: b}))} {
			got, err := a.Issue(csr, web, seconds)
			if err != nil {
				require.True(t, isRequest(err), "%v", err)
				continue
			}
			roots := rootsOf(a)
			leaf, err := verify(t, got.Chain, roots, time.Now())
			require.NoError(t, err)
			require.Equal(t, web.String(), leaf.URIs[0].String())
			require.Empty(t, leaf.DNSNames)
		}
	})
}
