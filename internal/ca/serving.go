package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"time"
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
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, key.Public(), s.key)
	if err != nil {
		return nil, err
	}
	out := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	for _, c := range s.chain {
		out.Certificate = append(out.Certificate, c.Raw)
	}
	out.Leaf, err = x509.ParseCertificate(der)
	return out, err
}
