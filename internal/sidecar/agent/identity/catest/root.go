// Package catest is a CA for tests: roots, certificates, and a server whose answers a test determines.
package catest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"time"
)

// Root is a self-signed CA certificate with its key.
type Root struct {
	Cert *x509.Certificate
	key  crypto.Signer
}

// NewRoot makes a root that is valid for an hour.
func NewRoot(name string) (*Root, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &Root{Cert: cert, key: key}, err
}

// ReadRoot decodes a CA certificate and its PKCS #8 key, both in PEM.
func ReadRoot(certPEM, keyPEM []byte) (*Root, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	return &Root{Cert: pair.Leaf, key: pair.PrivateKey.(crypto.Signer)}, nil
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		panic(err) // only without randomness
	}
	return n
}

// Revoked returns a list of revoked certificates, in PEM, valid for an hour.
func (r *Root) Revoked(list ...*tls.Certificate) ([]byte, error) {
	now := time.Now()
	out := &x509.RevocationList{Number: serial(), ThisUpdate: now.Add(-time.Hour), NextUpdate: now.Add(time.Hour)}
	for _, c := range list {
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil {
			return nil, err
		}
		out.RevokedCertificateEntries = append(out.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: leaf.SerialNumber, RevocationTime: now})
	}
	der, err := x509.CreateRevocationList(rand.Reader, out, r.Cert, r.key)
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), err
}

// PEM returns the certificate.
func (r *Root) PEM() []byte { return encode(r.Cert.Raw) }

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Sign returns a certificate for a key, with SPIFFE ids, names and addresses, in PEM.
func (r *Root) Sign(key crypto.PublicKey, life time.Duration, uris []string, names []string) ([]byte, error) {
	der, err := r.sign(key, life, uris, names)
	return encode(der), err
}

func (r *Root) sign(key crypto.PublicKey, life time.Duration, uris []string, names []string) ([]byte, error) {
	template := &x509.Certificate{
		SerialNumber: serial(), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(life),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, u := range uris {
		parsed, err := url.Parse(u)
		if err != nil {
			return nil, err
		}
		template.URIs = append(template.URIs, parsed)
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return x509.CreateCertificate(rand.Reader, template, r.Cert, key, r.key)
}

// Pair returns a certificate with a key of its own.
func (r *Root) Pair(life time.Duration, uris []string, names []string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := r.sign(key.Public(), life, uris, names)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
