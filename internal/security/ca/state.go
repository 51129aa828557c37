package ca

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"time"
)

// State describes an authority for people.
type State struct {
	Where string    `json:"where"`
	Own   bool      `json:"own"` // the root was generated, and is renewed by the control plane
	Since time.Time `json:"since"`
	// Problem is why the present contents of the store are not in force.
	Problem string            `json:"problem,omitempty"`
	Signer  CertificateInfo   `json:"signer"`
	Chain   []CertificateInfo `json:"chain,omitempty"` // from the signing certificate, without the root
	Roots   []CertificateInfo `json:"roots"`
	// Revoked is the number of revoked certificates, and RevokedUntil when the first list expires. After that Envoys refuse
	// every certificate.
	Revoked      int       `json:"revoked,omitempty"`
	RevokedUntil time.Time `json:"revokedUntil,omitzero"`
	TTL          string    `json:"ttl"` // default lifetime of certificates
	MaxTTL       string    `json:"maxTTL"`
	Issued       uint64    `json:"issued"` // certificates since the start of the control plane
}

// CertificateInfo describes a certificate.
type CertificateInfo struct {
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	Serial    string    `json:"serial"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	SHA256    string    `json:"sha256"`
}

// InfoOf describes a certificate.
func InfoOf(c *x509.Certificate) CertificateInfo {
	sum := sha256.Sum256(c.Raw)
	return CertificateInfo{
		Subject: c.Subject.String(), Issuer: c.Issuer.String(), Serial: c.SerialNumber.Text(16),
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, SHA256: hex.EncodeToString(sum[:]),
	}
}

// InfosOf describes certificates.
func InfosOf(list []*x509.Certificate) []CertificateInfo {
	var out []CertificateInfo
	for _, c := range list {
		out = append(out, InfoOf(c))
	}
	return out
}

// State returns the present state.
func (a *Authority) State() State {
	s := a.signer.Load()
	a.mu.Lock()
	defer a.mu.Unlock()
	return State{
		Where: s.contents.Where, Own: s.contents.Own, Since: a.since, Problem: a.problem.Text(),
		Signer: InfoOf(s.cert), Chain: InfosOf(s.chain), Roots: InfosOf(s.roots),
		Revoked: s.revoked.Len(), RevokedUntil: s.revoked.Expiry(),
		TTL: a.opts.TTL.String(), MaxTTL: a.opts.MaxTTL.String(), Issued: a.issued.Load(),
	}
}
