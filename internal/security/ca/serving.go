package ca

import (
	"crypto/tls"
	"crypto/x509"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/security/servercert"
)

// servingTTL is the lifetime of the control plane's server certificate. It is replaced after half of that.
const servingTTL = 30 * 24 * time.Hour

// serving holds the server certificate and the roots that verify clients. It is replaced during a handshake if needed,
// so that no timer is involved.
type serving struct {
	authority *Authority
	names     []string

	mu     sync.Mutex // guards the fields below
	signer *signer    // that signed the certificate
	config *tls.Config
	cert   *x509.Certificate
}

// ServerTLS returns the configuration of a server with names, which may be addresses. A client may present a
// certificate, which must be of the mesh.
func (a *Authority) ServerTLS(names []string) *tls.Config {
	s := &serving{authority: a, names: names}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current() },
	}
}

// current returns the present configuration.
func (s *serving) current() (*tls.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, by := s.authority.now(), s.authority.signer.Load()
	if s.config != nil && s.signer == by && now.Before(renewAt(s.cert, 0.5)) {
		return s.config, nil
	}
	pair, err := by.serve(s.names, now)
	if err != nil {
		if s.config != nil && now.Before(s.cert.NotAfter) {
			return s.config, nil
		}
		return nil, err
	}
	s.signer, s.cert = by, pair.Leaf
	s.config = &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*pair},
		ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: by.pool, Time: s.authority.now,
		VerifyConnection: func(c tls.ConnectionState) error { return by.revoked.Check(c.VerifiedChains) },
		// A resumed session would not be verified against the present roots.
		SessionTicketsDisabled: true,
	}
	return s.config, nil
}

// serve issues a certificate for a server.
func (s *signer) serve(names []string, now time.Time) (*tls.Certificate, error) {
	template, err := s.leaf(servingTTL, now)
	if err != nil {
		return nil, err
	}
	out, err := servercert.Sign(template, names, s.cert, s.key)
	if err != nil {
		return nil, err
	}
	for _, c := range s.chain {
		out.Certificate = append(out.Certificate, c.Raw)
	}
	return out, nil
}
