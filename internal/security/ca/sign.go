package ca

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// RequestError is an error in a request. A retry of the same request fails too.
type RequestError struct{ text string }

// Error implements error.
func (e *RequestError) Error() string { return e.text }

func wrongRequest(format string, args ...any) error {
	return &RequestError{fmt.Sprintf(format, args...)}
}

// maxRequest bounds a request for a certificate, in bytes. One for an RSA key of 8192 bits has 3 KB.
const maxRequest = 32 << 10

// parseRequest decodes a certificate signing request in PEM, and verifies that its author has the key. It ignores the
// requested name.
func parseRequest(text string) (crypto.PublicKey, error) {
	if len(text) > maxRequest {
		return nil, wrongRequest("csr: %d bytes: the limit is %d", len(text), maxRequest)
	}
	block, rest := pem.Decode([]byte(text))
	switch {
	case block == nil:
		return nil, wrongRequest("csr: not in PEM")
	case block.Type != "CERTIFICATE REQUEST" && block.Type != "NEW CERTIFICATE REQUEST":
		return nil, wrongRequest("csr: a %q instead of a CERTIFICATE REQUEST", block.Type)
	case strings.TrimSpace(string(rest)) != "":
		return nil, wrongRequest("csr: data after the request")
	}
	r, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, wrongRequest("csr: %v", err)
	}
	if err := checkPublic(r.PublicKey); err != nil {
		return nil, wrongRequest("csr: %v", err)
	}
	if err := r.CheckSignature(); err != nil {
		return nil, wrongRequest("csr: not signed by its own key: %v", err)
	}
	return r.PublicKey, nil
}

// ttl returns the lifetime for a request of seconds; 0: the default.
func (o *Options) ttl(seconds int64) (time.Duration, error) {
	switch {
	case seconds < 0:
		return 0, wrongRequest("validity_duration: %d s is in the past", seconds)
	case seconds == 0:
		return o.TTL, nil
	case seconds > int64(o.MaxTTL/time.Second):
		return 0, wrongRequest("validity_duration: %d s exceeds the maximum of this authority: %d s (%s)", seconds, int64(o.MaxTTL/time.Second), o.MaxTTL)
	}
	return time.Duration(seconds) * time.Second, nil
}

// leaf returns the template of certificates. They do not outlive the signing certificate.
func (s *signer) leaf(ttl time.Duration, now time.Time) (*x509.Certificate, error) {
	end := s.expiry()
	if !now.Before(end) {
		return nil, fmt.Errorf("%s expired at %s", s.expiringFile(), end.Format(time.RFC3339))
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	out := &x509.Certificate{
		SerialNumber: serial, NotBefore: now.Add(-skew), NotAfter: now.Add(ttl), BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if end.Before(out.NotAfter) {
		out.NotAfter = end
	}
	return out, nil
}

// sign issues a workload's certificate. Its only name is id. The subject is empty, which makes the name critical.
func (s *signer) sign(key crypto.PublicKey, id model.Identity, ttl time.Duration, now time.Time) (*x509.Certificate, error) {
	if err := id.Check(); err != nil {
		return nil, err
	}
	name, err := url.Parse(id.String())
	if err != nil {
		return nil, err
	}
	template, err := s.leaf(ttl, now)
	if err != nil {
		return nil, err
	}
	template.URIs = []*url.URL{name}
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, key, s.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Issued is a certificate with its chain.
type Issued struct {
	Certificate *x509.Certificate
	// Chain is in PEM: the certificate, the intermediates, and last all roots in one element, as in Istio's
	// CreateCertificate.
	Chain []string
}

// Issue signs a request for a certificate with an identity. The identity in the request is ignored.
func (a *Authority) Issue(csr string, id model.Identity, seconds int64) (*Issued, error) {
	key, err := parseRequest(csr)
	if err != nil {
		return nil, err
	}
	ttl, err := a.opts.ttl(seconds)
	if err != nil {
		return nil, err
	}
	s := a.signer.Load()
	cert, err := s.sign(key, id, ttl, a.now())
	if err != nil {
		return nil, fmt.Errorf("cannot sign the certificate of %s: %w", id, err)
	}
	a.issued.Add(1)
	chain := append([]string{encode(cert)}, s.chainPEM...)
	return &Issued{Certificate: cert, Chain: append(chain, s.rootPEM)}, nil
}

// isRequest reports whether an error is the caller's mistake.
func isRequest(err error) bool {
	var r *RequestError
	return errors.As(err, &r)
}
