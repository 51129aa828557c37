package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"sync"
	"time"
)

// peerTTL is the lifetime of a control plane's client certificate. It is replaced after half of that.
const peerTTL = 24 * time.Hour

// peerPath is the path in a control plane's SPIFFE id, before its namespace. No workload gets such an id, and its
// holder is not a workload.
const peerPath = "/control-plane/"

// PeerName returns the SPIFFE id of control planes.
func PeerName(trustDomain, rootNamespace string) string {
	return "spiffe://" + trustDomain + peerPath + rootNamespace
}

// IsPeer reports whether a verified certificate has the SPIFFE id of control planes.
func IsPeer(c *x509.Certificate, name string) bool {
	return len(c.URIs) == 1 && c.URIs[0].String() == name
}

// Peering makes TLS configurations for connections to other control planes. It is safe for concurrent use.
type Peering struct {
	authority *Authority
	server    string        // the name in their certificates
	name      func() string // see PeerName

	mu     sync.Mutex // guards the fields below
	signer *signer    // that signed pair
	pair   *tls.Certificate
	called string // the name in pair
}

// Peering returns a Peering for servers with a name. name is this control plane's.
func (a *Authority) Peering(server string, name func() string) *Peering {
	return &Peering{authority: a, server: server, name: name}
}

// TLS returns the configuration for one new connection.
func (p *Peering) TLS() (*tls.Config, error) {
	pair, err := p.current()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, ServerName: p.server, RootCAs: p.authority.Pool(),
		Certificates: []tls.Certificate{*pair}, Time: p.authority.now,
		VerifyConnection: func(c tls.ConnectionState) error { return p.authority.Revoked().Check(c.VerifiedChains) },
	}, nil
}

func (p *Peering) current() (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, by, name := p.authority.now(), p.authority.signer.Load(), p.name()
	if p.pair != nil && p.signer == by && p.called == name && now.Before(renewAt(p.pair.Leaf, 0.5)) {
		return p.pair, nil
	}
	pair, err := by.peer(name, now)
	if err != nil {
		return nil, err
	}
	p.signer, p.pair, p.called = by, pair, name
	return pair, nil
}

// peer issues a certificate for a control plane as a client.
func (s *signer) peer(name string, now time.Time) (*tls.Certificate, error) {
	uri, err := url.Parse(name)
	if err != nil {
		return nil, err
	}
	template, err := s.leaf(peerTTL, now)
	if err != nil {
		return nil, err
	}
	template.URIs, template.ExtKeyUsage = []*url.URL{uri}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return s.pair(template, key)
}

// pair signs a certificate for a key of this process, with the chain to a root.
func (s *signer) pair(template *x509.Certificate, key crypto.Signer) (*tls.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, key.Public(), s.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	out := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
	for _, c := range s.chain {
		out.Certificate = append(out.Certificate, c.Raw)
	}
	return out, nil
}
