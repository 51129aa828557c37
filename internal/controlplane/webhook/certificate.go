package webhook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/security/servercert"
)

// Issuer is in the names of the certificates that are made here.
const issuer = "moonsail-validator"

// validity of certificates that are made here. They are kept in memory only.
const validity = 5 * 365 * 24 * time.Hour

// authority is a certificate authority of this process, with the last certificate that it issued.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	PEM  []byte // of cert

	mu    sync.Mutex // guards the fields below
	names []string
	leaf  *tls.Certificate
}

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := template(now)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	// Each has a name of its own, because a bundle may contain many.
	template.Subject.CommonName = fmt.Sprintf("%s %x", issuer, template.SerialNumber)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{key: key, cert: cert, PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

func template(now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: issuer, Organization: []string{issuer}},
		NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(validity),
	}, nil
}

// issue makes a certificate for names, which may be addresses, and for all earlier names; unless there is
// one.
func (a *authority) issue(names []string, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	names = slices.Concat(a.names, names)
	slices.Sort(names)
	names = slices.Compact(names)
	if a.leaf != nil && slices.Equal(a.names, names) {
		return nil
	}
	template, err := template(now)
	if err != nil {
		return err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	leaf, err := servercert.Sign(template, names, a.cert, a.key)
	if err != nil {
		return err
	}
	a.names, a.leaf = slices.Clone(names), leaf
	return nil
}

func (a *authority) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leaf, nil
}

// files is a certificate in files, which are read again when they change.
type files struct {
	cert, key string

	mu     sync.Mutex // guards the fields below
	loaded *tls.Certificate
	at     [2]time.Time // modification times of the loaded files
}

func (f *files) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var at [2]time.Time
	for i, name := range []string{f.cert, f.key} {
		if info, err := os.Stat(name); err == nil {
			at[i] = info.ModTime()
		}
	}
	if f.loaded != nil && f.at == at {
		return f.loaded, nil
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err == nil {
		f.loaded, f.at = &pair, at
		return f.loaded, nil
	}
	if f.loaded != nil {
		return f.loaded, nil // they are being replaced
	}
	return nil, err
}
