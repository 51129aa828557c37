package ca

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"maps"
	"math/big"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var web = model.Identity{TrustDomain: "cluster.local", Namespace: "shop", ServiceAccount: "web"}

// memory is a Store in memory.
type memory struct {
	mu   sync.Mutex // guards the fields below
	c    *Contents
	err  error
	gone int // number of reads that fail first
}

func (m *memory) Place() string { return "memory" }

func (m *memory) Read(context.Context) (*Contents, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone > 0 {
		m.gone--
		return nil, context.DeadlineExceeded
	}
	return m.c, m.err
}

func (m *memory) Create(_ context.Context, f Files) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.c == nil {
		m.c = &Contents{Files: f, Where: "memory", Own: true, Version: f.fingerprint()}
	}
	return nil
}

func (m *memory) Replace(_ context.Context, old *Contents, f Files) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.c.Version == old.Version {
		m.c = &Contents{Files: f, Where: "memory", Own: old.Own, Version: f.fingerprint()}
	}
	return nil
}

// set stores files of an operator.
func (m *memory) set(f Files) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.c = &Contents{Files: f, Where: "memory", Version: f.fingerprint()}
}

// setClock is a clock that a test sets.
type setClock struct {
	mu sync.Mutex // guards the field below
	at time.Time
}

func (c *setClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *setClock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func open(t testing.TB, o Options) *Authority {
	t.Helper()
	if o.Log == nil {
		o.Log = quiet()
	}
	if o.Store == nil {
		o.Store = &memory{}
	}
	a, err := Open(t.Context(), o)
	require.NoError(t, err)
	return a
}

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func rsaKey(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	require.NoError(t, err)
	return key
}

// request returns a certificate signing request with another identity.
func request(t testing.TB, key crypto.Signer) string {
	t.Helper()
	other, err := url.Parse("spiffe://cluster.local/ns/bank/sa/teller")
	require.NoError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "bank"}, URIs: []*url.URL{other}, DNSNames: []string{"bank.example.com"},
	}, key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// party is an operator's CA.
type party struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// found makes a CA below another one, or a self-signed one.
func found(t testing.TB, name string, by *party, change func(*x509.Certificate)) *party {
	t.Helper()
	p := &party{key: ecKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	if change != nil {
		change(template)
	}
	parent, signer := template, p.key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, p.key.Public(), signer)
	require.NoError(t, err)
	p.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return p
}

func (p *party) pem() []byte { return []byte(encode(p.cert)) }

func (p *party) keyPEM(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(p.key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// plugIn returns an operator's files: a CA between a root and the mesh.
func plugIn(t testing.TB, change func(*x509.Certificate)) (files Files, root *party) {
	t.Helper()
	root = found(t, "root", nil, nil)
	between := found(t, "between", root, nil)
	mesh := found(t, "mesh", between, change)
	return Files{
		CertFile: mesh.pem(), KeyFile: mesh.keyPEM(t), RootFile: root.pem(),
		ChainFile: append(mesh.pem(), between.pem()...),
	}, root
}

// with returns files with another content; nil removes the file.
func (f Files) with(name string, b []byte) Files {
	out := maps.Clone(f)
	if out[name] = b; b == nil {
		delete(out, name)
	}
	return out
}

// verify verifies a chain as peers do.
func verify(t testing.TB, chain []string, roots string, now time.Time) (*x509.Certificate, error) {
	t.Helper()
	leaf, err := parseCertificates([]byte(chain[0]))
	require.NoError(t, err)
	between, pool := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range chain[1 : len(chain)-1] {
		between.AppendCertsFromPEM([]byte(c))
	}
	require.True(t, pool.AppendCertsFromPEM([]byte(roots)))
	_, err = leaf[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}})
	return leaf[0], err
}

func rootsOf(a *Authority) string {
	t, _ := a.Trust()
	return t.Roots
}
