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

// Properties of generated roots.
const (
	rootTTL = 10 * 365 * 24 * time.Hour
	// skew is the accepted difference of clocks: certificates are valid from that long before their creation.
	skew = 2 * time.Minute
	// renewAfter is the part of a root's lifetime after which a new one is generated.
	renewAfter = 0.8
)

// newRoot generates a key and its root.
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
	// Each root has a name of its own, because a bundle may contain many.
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

// renewed returns a signer's files with a root of a longer lifetime. It has the key and the name of the old one, so
// that a holder of either root accepts the certificates of both. The old one stays among the roots until it expires.
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

// newSerial returns a positive random number of 127 bits.
func newSerial() (*big.Int, error) {
	top := new(big.Int).Lsh(big.NewInt(1), 126)
	n, err := rand.Int(rand.Reader, top)
	if err != nil {
		return nil, err
	}
	return n.Add(n, top), nil
}

// renewAt returns the time at which a part of a certificate's lifetime is over.
func renewAt(c *x509.Certificate, part float64) time.Time {
	return c.NotBefore.Add(time.Duration(part * float64(c.NotAfter.Sub(c.NotBefore))))
}
