package ca

import (
	"crypto/tls"
	"crypto/x509"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/security/servercert"
)

// servingTTL is how long a certificate lasts that the control plane gives itself; it is
// replaced at half of that.
const servingTTL = 30 * 24 * time.Hour

// serving is the certificate that the control plane shows, and by what it checks those of
// others. It is made when a client says hello and the last one will not do any more: so no
// clock has to be set, and none can be missed.
type serving struct {
	authority *Authority
	names     []string

	mu     sync.Mutex // guards what follows
	signer *signer    // that signed it
	config *tls.Config
	cert   *x509.Certificate
}

// ServerTLS is for a server by these names, which may be addresses. Clients may show a
// certificate, and then it must be one of the mesh.
func (a *Authority) ServerTLS(names []string) *tls.Config {
	s := &serving{authority: a, names: names}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current() },
	}
}

// current is what is shown now.
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
		// A session that is resumed is not checked anew, and its roots may not be trusted any more.
		SessionTicketsDisabled: true,
	}
	return s.config, nil
}

// serve makes a key and a certificate for a server.
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
