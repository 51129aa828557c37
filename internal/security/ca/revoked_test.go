package ca

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lister is a CA that may sign lists of revoked certificates.
func lister(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign }

// list is p's list of revoked certificates.
func (p *party) list(t *testing.T, revoked ...*x509.Certificate) []byte {
	t.Helper()
	l := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour)}
	for _, c := range revoked {
		l.RevokedCertificateEntries = append(l.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, l, p.cert, p.key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

func leafOf(t *testing.T, pair tls.Certificate) *x509.Certificate {
	t.Helper()
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	require.NoError(t, err)
	return leaf
}

// TestRevokedCertificates checks that a revoked client is refused, that invalid lists change nothing and do not delay a new
// root, and that lists can be removed.
func TestRevokedCertificates(t *testing.T) {
	root := found(t, "root", nil, lister)
	files := Files{CertFile: root.pem(), KeyFile: root.keyPEM(t), RootFile: root.pem()}
	place := &memory{}
	place.set(files)
	a := open(t, Options{Store: place})
	conf := a.ServerTLS([]string{"127.0.0.1"})
	revoked, other := pairOf(t, a), pairOf(t, a)
	accepts := func(client tls.Certificate) bool {
		_, err := hello(t, conf, rootsOf(a), "127.0.0.1", time.Now(), client)
		return err == nil
	}
	require.True(t, accepts(revoked))

	_, changed := a.Trust()
	files = files.with(RevokedFile, root.list(t, leafOf(t, revoked)))
	place.set(files)
	require.Empty(t, a.lookNow(t))
	require.False(t, accepts(revoked))
	require.True(t, accepts(other))
	trust, _ := a.Trust()
	require.Equal(t, string(files[RevokedFile]), trust.Revoked)
	require.NotPanics(t, func() { <-changed })

	second := found(t, "second", nil, lister)
	both := append(root.pem(), second.pem()...)
	place.set(files.with(RootFile, both))
	require.Contains(t, a.lookNow(t), `ca-crl.pem: "CN=second": it has no list`)
	require.Equal(t, string(both), rootsOf(a), "the new root does not wait")
	require.False(t, accepts(revoked), "the lists before stay")

	next := Files{CertFile: second.pem(), KeyFile: second.keyPEM(t), RootFile: both, RevokedFile: files[RevokedFile]}
	place.set(next)
	require.Contains(t, a.lookNow(t), "it has no list", "peers would refuse what it signs")
	require.Equal(t, InfoOf(root.cert), a.State().Signer)
	place.set(next.with(RevokedFile, append(second.list(t), files[RevokedFile]...)))
	require.Empty(t, a.lookNow(t))
	require.Equal(t, InfoOf(second.cert), a.State().Signer)
	require.False(t, accepts(revoked))

	place.set(next.with(RevokedFile, nil))
	require.Empty(t, a.lookNow(t))
	require.True(t, accepts(revoked), "nothing is revoked any more")
}

func TestInvalidListsAtStart(t *testing.T) {
	root := found(t, "root", nil, lister)
	place := &memory{}
	place.set(Files{CertFile: root.pem(), KeyFile: root.keyPEM(t), RootFile: root.pem(), RevokedFile: []byte("x")})
	a := open(t, Options{Store: place})
	require.Contains(t, a.State().Problem, "ca-crl.pem: not a list of revoked certificates in PEM")
	_, err := a.Issue(request(t, ecKey(t)), web, 0)
	require.NoError(t, err)
	trust, _ := a.Trust()
	require.True(t, trust.Unread, "what others know stays")

	list := root.list(t)
	place.set(Files{CertFile: root.pem(), KeyFile: root.keyPEM(t), RootFile: root.pem(), RevokedFile: list})
	require.Empty(t, a.lookNow(t))
	trust, _ = a.Trust()
	require.False(t, trust.Unread)
	require.Equal(t, string(list), trust.Revoked)
}
