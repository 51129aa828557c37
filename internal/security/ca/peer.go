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

// peerTTL is how long a certificate lasts that a control plane shows to another one; it is
// replaced at half of that.
const peerTTL = 24 * time.Hour

// peerPath is the path of a control plane's name, before its namespace. It is none of a
// workload's: no workload is given such a name, and who has it is no workload.
const peerPath = "/control-plane/"

// PeerName is the SPIFFE id by which a control plane knows another one.
func PeerName(trustDomain, rootNamespace string) string {
	return "spiffe://" + trustDomain + peerPath + rootNamespace
}

// IsPeer tells whether a certificate, which was verified, is that of a control plane by name.
func IsPeer(c *x509.Certificate, name string) bool {
	return len(c.URIs) == 1 && c.URIs[0].String() == name
}

// Peering makes what a control plane connects to others with. All its functions may be called
// by many goroutines.
type Peering struct {
	authority *Authority
	server    string        // by which the others are called
	name      func() string // see PeerName

	mu     sync.Mutex // guards what follows
	signer *signer    // that signed it
	pair   *tls.Certificate
	called string // in pair
}

// Peering is for servers of a name, which know this one by another.
func (a *Authority) Peering(server string, name func() string) *Peering {
	return &Peering{authority: a, server: server, name: name}
}

// TLS is for one connection, that is made now.
func (p *Peering) TLS() (*tls.Config, error) {
	pair, err := p.current()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, ServerName: p.server, RootCAs: p.authority.Pool(),
		Certificates: []tls.Certificate{*pair}, Time: p.authority.now,
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

// peer makes a key and a certificate for a client that is a control plane.
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

// pair signs a certificate for a key of our own, and puts what leads to a root behind it.
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
