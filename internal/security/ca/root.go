package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// What is made here.
const (
	rootTTL = 10 * 365 * 24 * time.Hour
	// skew is how far clocks may differ: certificates are valid from that much before they
	// are made.
	skew = 2 * time.Minute
	// renewAfter is the part of a root's life after which a new one is made.
	renewAfter = 0.8
)

// newRoot makes a key and a root of it.
func newRoot(organization string, ttl time.Duration, now time.Time) (Files, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	// No two roots have one name: a bundle may hold many.
	subject := pkix.Name{Organization: []string{organization}, CommonName: fmt.Sprintf("Moonsail root %x", serial.Bytes()[:4])}
	cert, err := selfSign(key, &x509.Certificate{Subject: subject}, ttl, now)
	if err != nil {
		return nil, err
	}
	return Files{
		CertFile: []byte(encode(cert)), RootFile: []byte(encode(cert)), OwnFile: {},
		KeyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
	}, nil
}

// renewed is a signer's files with a root that lasts longer. It has the key and the name of
// the old one, so that whoever trusts either of them trusts what either has signed; the old
// one stays among the roots until it expires.
func (s *signer) renewed(ttl time.Duration, now time.Time) (Files, error) {
	cert, err := selfSign(s.key, s.cert, ttl, now)
	if err != nil {
		return nil, err
	}
	roots := encode(cert)
	for _, r := range s.roots {
		if now.Before(r.NotAfter) {
			roots += encode(r)
		}
	}
	return Files{CertFile: []byte(encode(cert)), RootFile: []byte(roots), OwnFile: {}, KeyFile: s.contents.Files[KeyFile]}, nil
}

// selfSign makes a root with the subject and key identifier of another.
func selfSign(key crypto.Signer, like *x509.Certificate, ttl time.Duration, now time.Time) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: like.Subject, RawSubject: like.RawSubject, SubjectKeyId: like.SubjectKeyId,
		NotBefore: now.Add(-skew), NotAfter: now.Add(ttl),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// newSerial is 127 bits that nobody can guess; it is not 0 and has no sign.
func newSerial() (*big.Int, error) {
	top := new(big.Int).Lsh(big.NewInt(1), 126)
	n, err := rand.Int(rand.Reader, top)
	if err != nil {
		return nil, err
	}
	return n.Add(n, top), nil
}

// renewAt is when a certificate's life is over but for a rest.
func renewAt(c *x509.Certificate, part float64) time.Time {
	return c.NotBefore.Add(time.Duration(part * float64(c.NotAfter.Sub(c.NotBefore))))
}
