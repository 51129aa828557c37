package ca

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/logtext"
)

// lookNow reads the Store, and returns the problem.
func (a *Authority) lookNow(t *testing.T) string {
	t.Helper()
	a.look(t.Context())
	return a.State().Problem
}

// TestInvalidFiles checks that each mistake of an operator is reported with its file, at the start and later, and that
// the last valid files stay in force.
func TestInvalidFiles(t *testing.T) {
	good, root := plugIn(t, nil)
	other, otherRoot := plugIn(t, nil)
	notCA, _ := plugIn(t, func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, 0 })
	noSigning, _ := plugIn(t, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCRLSign })
	expired, _ := plugIn(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	early, _ := plugIn(t, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })
	servers, _ := plugIn(t, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
	narrow := found(t, "narrow root", nil, func(c *x509.Certificate) { c.MaxPathLenZero = true })
	below := found(t, "below", narrow, nil)
	for name, c := range map[string]struct {
		files Files
		says  string
	}{
		"for servers alone":    {servers, "ca-cert.pem: peers would refuse the certificates that it signs: x509: certificate specifies an incompatible key usage"},
		"no CA below it":       {Files{CertFile: below.pem(), KeyFile: below.keyPEM(t), RootFile: narrow.pem()}, "ca-cert.pem: peers would refuse the certificates that it signs: x509: too many intermediates"},
		"no certificate":       {good.with(CertFile, nil), "ca-cert.pem: missing"},
		"no key":               {good.with(KeyFile, nil), "ca-key.pem: missing"},
		"no root":              {good.with(RootFile, nil), "root-cert.pem: missing"},
		"no chain":             {good.with(ChainFile, nil), "cert-chain.pem: ca-cert.pem does not chain to a certificate of root-cert.pem"},
		"certificate no PEM":   {good.with(CertFile, []byte("x")), "ca-cert.pem: no certificate in PEM"},
		"certificate is a key": {good.with(CertFile, good[KeyFile]), "ca-cert.pem: a PRIVATE KEY instead"},
		"certificate broken":   {good.with(CertFile, good[CertFile][:200]), "ca-cert.pem: no certificate in PEM"},
		"key no PEM":           {good.with(KeyFile, []byte("x")), "ca-key.pem: no private key in PEM"},
		"key encrypted":        {good.with(KeyFile, pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")})), "ca-key.pem: encrypted keys"},
		"other key":            {good.with(KeyFile, other[KeyFile]), "ca-cert.pem: its key is not that of ca-key.pem"},
		"other root":           {good.with(RootFile, otherRoot.pem()), "does not chain to a certificate of root-cert.pem"},
		"root no PEM":          {good.with(RootFile, []byte("x")), "root-cert.pem: no certificate in PEM"},
		"root with a tail":     {good.with(RootFile, append(root.pem(), "x"...)), "root-cert.pem: the text after certificate 1"},
		"root is a leaf":       {good.with(RootFile, append(root.pem(), notCA[CertFile]...)), "is not a CA certificate"},
		"no authority":         {notCA, "ca-cert.pem: not a CA certificate"},
		"may not sign":         {noSigning, "ca-cert.pem: its key usage"},
		"expired":              {expired, "ca-cert.pem: it expired at"},
		"early":                {early, "ca-cert.pem: it is not valid before"},
	} {
		t.Run(name, func(t *testing.T) {
			place := &memory{}
			place.set(c.files)
			_, err := Open(t.Context(), Options{Store: place, Log: quiet()})
			require.ErrorContains(t, err, c.says)

			place.set(good)
			said := &logtext.Buffer{}
			a := open(t, Options{Store: place, Log: slog.New(slog.NewTextHandler(said, nil))})
			place.set(c.files)
			require.Contains(t, a.lookNow(t), c.says)
			require.Contains(t, said.String(), "stays unchanged")
			_, err = a.Issue(request(t, ecKey(t)), web, 0)
			require.NoError(t, err)
			roots := rootsOf(a)
			require.Equal(t, string(root.pem()), roots)
			place.set(good)
			require.Empty(t, a.lookNow(t))
			require.Contains(t, said.String(), "can be read again")
		})
	}
}

// TestOpenSSLKeys decodes keys in the forms of openssl.
func TestOpenSSLKeys(t *testing.T) {
	root := found(t, "root", nil, nil)
	der, err := x509.MarshalECPrivateKey(root.key.(*ecdsa.PrivateKey))
	require.NoError(t, err)
	parameters := pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}})
	place := &memory{}
	place.set(Files{CertFile: root.pem(), KeyFile: append(parameters, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})...)})
	a := open(t, Options{Store: place})
	roots := rootsOf(a)
	require.Equal(t, string(root.pem()), roots, "a certificate that has signed itself is its own root")
}

// TestRotation adds a new root, signs under it, then removes the old one. At each step the certificates and roots of
// this step and of the step before accept each other.
func TestRotation(t *testing.T) {
	old, oldRoot := plugIn(t, nil)
	fresh, freshRoot := plugIn(t, nil)
	both := append(oldRoot.pem(), freshRoot.pem()...)
	place := &memory{}
	place.set(old)
	a := open(t, Options{Store: place})
	type holding struct {
		chain []string
		roots string
	}
	hold := func() holding {
		got, err := a.Issue(request(t, ecKey(t)), web, 0)
		require.NoError(t, err)
		return holding{got.Chain, got.Chain[len(got.Chain)-1]}
	}
	before, first := hold(), hold()
	for step, files := range []Files{old.with(RootFile, both), fresh.with(RootFile, both), fresh} {
		_, changed := a.Trust()
		place.set(files)
		require.Empty(t, a.lookNow(t))
		after := hold()
		for _, pair := range [][2]holding{{before, after}, {after, before}} {
			_, err := verify(t, pair[0].chain, pair[1].roots, time.Now())
			require.NoError(t, err, "step %d", step)
		}
		select {
		case <-changed:
			require.NotEqual(t, before.roots, after.roots)
		default:
			require.Equal(t, before.roots, after.roots)
		}
		before = after
	}
	_, err := verify(t, first.chain, before.roots, time.Now())
	require.Error(t, err, "in the end the old root is not trusted")
}

// TestGeneratedRootIsRenewed checks that a generated root is renewed in time, once by several control planes, and that
// holders of the old and of the new root accept each other.
func TestGeneratedRootIsRenewed(t *testing.T) {
	place, c := &memory{}, &setClock{at: time.Now()}
	const life = 100 * 24 * time.Hour
	o := Options{Store: place, RootTTL: life, Now: c.now}
	a, b := open(t, o), open(t, o)
	oldRoots := rootsOf(a)
	_, changed := a.Trust()
	sameRoots := rootsOf(b)
	require.Equal(t, oldRoots, sameRoots, "the second one takes what the first one made")
	old, err := a.Issue(request(t, ecKey(t)), web, int64(90*24*time.Hour/time.Second))
	require.NoError(t, err)

	c.add(79 * 24 * time.Hour)
	require.Empty(t, a.lookNow(t))
	roots := rootsOf(a)
	require.Equal(t, oldRoots, roots, "it is not time yet")
	c.add(2 * 24 * time.Hour)
	for range 2 {
		require.Empty(t, a.lookNow(t))
		require.Empty(t, b.lookNow(t))
	}
	await.From(t, changed)
	roots = rootsOf(a)
	sameRoots = rootsOf(b)
	require.Equal(t, roots, sameRoots)
	require.Contains(t, roots, oldRoots)
	require.WithinDuration(t, c.now().Add(life), a.RootExpiry(), time.Minute)
	fresh, err := b.Issue(request(t, ecKey(t)), web, 0)
	require.NoError(t, err)
	_, err = verify(t, fresh.Chain, oldRoots, c.now())
	require.NoError(t, err, "who has the old root believes new certificates")
	_, err = verify(t, old.Chain, roots, c.now())
	require.NoError(t, err, "who has the new roots believes old certificates")

	c.add(79 * 24 * time.Hour) // the old root has expired, the new one has not
	fresh, err = b.Issue(request(t, ecKey(t)), web, 0)
	require.NoError(t, err)
	_, err = verify(t, fresh.Chain, roots, c.now())
	require.NoError(t, err)
	for range 2 { // a third root without the first
		c.add(24 * time.Hour)
		require.Empty(t, a.lookNow(t))
	}
	roots = rootsOf(a)
	require.NotContains(t, roots, oldRoots)
}

// TestOperatorsRootIsNotRenewed checks that an operator's root stays unchanged.
func TestOperatorsRootIsNotRenewed(t *testing.T) {
	root, c, place := found(t, "root", nil, nil), &setClock{at: time.Now()}, &memory{}
	place.set(Files{CertFile: root.pem(), KeyFile: root.keyPEM(t)})
	a := open(t, Options{Store: place, Now: c.now})
	c.add(23*time.Hour + 50*time.Minute)
	require.Empty(t, a.lookNow(t))
	require.Equal(t, root.cert.NotAfter, a.RootExpiry())
	c.add(time.Hour)
	_, err := a.Issue(request(t, ecKey(t)), web, 0)
	require.ErrorContains(t, err, "ca-cert.pem expired at")
	require.False(t, isRequest(err))
}

// TestCertificatesDoNotOutliveTheirChain checks intermediates and roots, and that the error names the expired file.
func TestCertificatesDoNotOutliveTheirChain(t *testing.T) {
	early := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(2 * time.Hour) }
	for says, change := range map[string][2]func(*x509.Certificate){
		"root-cert.pem expired at": {early, nil}, "cert-chain.pem expired at": {nil, early},
	} {
		root := found(t, "root", nil, change[0])
		between := found(t, "between", root, change[1])
		mesh := found(t, "mesh", between, nil)
		c, place := &setClock{at: time.Now()}, &memory{}
		place.set(Files{CertFile: mesh.pem(), KeyFile: mesh.keyPEM(t), RootFile: root.pem(), ChainFile: between.pem()})
		a := open(t, Options{Store: place, Now: c.now})
		got, err := a.Issue(request(t, ecKey(t)), web, 0)
		require.NoError(t, err)
		require.WithinDuration(t, c.now().Add(2*time.Hour), got.Certificate.NotAfter, time.Minute)
		c.add(3 * time.Hour)
		_, err = a.Issue(request(t, ecKey(t)), web, 0)
		require.ErrorContains(t, err, says)
	}
}

// TestLongestChainCounts has two roots with one name and key, as during a renewal.
func TestLongestChainCounts(t *testing.T) {
	old := found(t, "root", nil, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(2 * time.Hour) })
	renewed := &party{key: old.key}
	template := *old.cert
	template.NotAfter = time.Now().Add(20 * time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, old.key.Public(), old.key)
	require.NoError(t, err)
	renewed.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	mesh := found(t, "mesh", old, nil)
	for _, roots := range [][]byte{append(old.pem(), renewed.pem()...), append(renewed.pem(), old.pem()...)} {
		place := &memory{}
		place.set(Files{CertFile: mesh.pem(), KeyFile: mesh.keyPEM(t), RootFile: roots})
		a := open(t, Options{Store: place})
		require.Equal(t, renewed.cert.NotAfter, a.ChainExpiry())
	}
}

func TestStoreThatFails(t *testing.T) {
	_, err := Open(t.Context(), Options{Store: &memory{err: errors.New("no disk")}, Log: quiet()})
	require.ErrorContains(t, err, "certificate authority in memory: no disk")

	place := &memory{gone: 1}
	said := &logtext.Buffer{}
	a := open(t, Options{Store: place, RetryOpen: true, Log: slog.New(slog.NewTextHandler(said, nil))})
	require.Contains(t, said.String(), "cannot read the certificate authority")
	place.mu.Lock()
	place.c = nil
	place.mu.Unlock()
	require.Contains(t, a.lookNow(t), "the files are gone")
	_, err = a.Issue(request(t, ecKey(t)), web, 0)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Open(ctx, Options{Store: &memory{gone: 100}, RetryOpen: true, Log: quiet()})
	require.Error(t, err, "it does not wait for ever")
}

// TestRun checks that Run applies changes.
func TestRun(t *testing.T) {
	given, root := plugIn(t, nil)
	place := &memory{}
	a := open(t, Options{Store: place, Every: time.Millisecond})
	_, changed := a.Trust()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	place.set(given)
	await.From(t, changed)
	roots := rootsOf(a)
	require.Equal(t, string(root.pem()), roots)
	cancel()
	running.Wait()
}
