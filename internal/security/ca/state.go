package ca

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"time"
)

// State is what is known of an authority, for people.
type State struct {
	Where string    `json:"where"`
	Own   bool      `json:"own"` // its root was made here, and is renewed here
	Since time.Time `json:"since"`
	// Problem is why what the store has now is not in force.
	Problem string            `json:"problem,omitempty"`
	Signer  CertificateInfo   `json:"signer"`
	Chain   []CertificateInfo `json:"chain,omitempty"` // from the signer on, without the root
	Roots   []CertificateInfo `json:"roots"`
	TTL     string            `json:"ttl"` // of a certificate that is not asked for a time
	MaxTTL  string            `json:"maxTTL"`
	Issued  uint64            `json:"issued"` // certificates, since the control plane's start
}

// CertificateInfo is what a certificate says.
type CertificateInfo struct {
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	Serial    string    `json:"serial"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	SHA256    string    `json:"sha256"`
}

func infoOf(c *x509.Certificate) CertificateInfo {
	sum := sha256.Sum256(c.Raw)
	return CertificateInfo{
		Subject: c.Subject.String(), Issuer: c.Issuer.String(), Serial: c.SerialNumber.Text(16),
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, SHA256: hex.EncodeToString(sum[:]),
	}
}

func infosOf(list []*x509.Certificate) []CertificateInfo {
	var out []CertificateInfo
	for _, c := range list {
		out = append(out, infoOf(c))
	}
	return out
}

// State is how the authority stands.
func (a *Authority) State() State {
	s := a.signer.Load()
	a.mu.Lock()
	defer a.mu.Unlock()
	return State{
		Where: s.contents.Where, Own: s.contents.Own, Since: a.since, Problem: a.problem,
		Signer: infoOf(s.cert), Chain: infosOf(s.chain), Roots: infosOf(s.roots),
		TTL: a.opts.TTL.String(), MaxTTL: a.opts.MaxTTL.String(), Issued: a.issued.Load(),
	}
}
