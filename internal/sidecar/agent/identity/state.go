package identity

import (
	"crypto/x509"
	"time"

	"github.com/moonsail/moonsail/internal/security/certpem"
)

// State describes a workload's secrets for people. It contains no key.
type State struct {
	From      string    `json:"from"`
	ID        string    `json:"id,omitempty"`
	Serial    string    `json:"serial,omitempty"`
	Issuer    string    `json:"issuer,omitempty"`
	Key       string    `json:"key,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	NotAfter  time.Time `json:"notAfter,omitzero"`
	Got       time.Time `json:"got,omitzero"`
	RenewAt   time.Time `json:"nextAttempt,omitzero"`
	Roots     []Root    `json:"roots,omitempty"`
	LeftOut   string    `json:"rootsLeftOut,omitempty"` // roots that cannot be read
	Problem   string    `json:"problem,omitempty"`
	Attempts  int       `json:"failedAttempts,omitempty"`
}

// Root is one certificate that verifies peers.
type Root struct {
	Subject string    `json:"subject"`
	Serial  string    `json:"serial"`
	Until   time.Time `json:"notAfter"`
}

// State returns the present state.
func (r *Renewer) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	st := State{From: r.place(), RenewAt: r.renewAt, Attempts: r.attempts, ID: r.secrets.id(), Got: r.secrets.got}
	if r.leftOut != nil {
		st.LeftOut = r.leftOut.Error()
	}
	if r.problem != nil {
		st.Problem = r.problem.Error()
	}
	if c := r.secrets.Leaf(); c != nil {
		st.Issuer = c.Issuer.String()
		st.Serial, st.Key, st.NotBefore, st.NotAfter = serial(c), c.PublicKeyAlgorithm.String(), c.NotBefore, c.NotAfter
	}
	roots, _ := certpem.Decode(r.secrets.Roots)
	for _, root := range roots {
		st.Roots = append(st.Roots, Root{Subject: root.Subject.String(), Serial: serial(root), Until: root.NotAfter})
	}
	return st
}

func serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }
