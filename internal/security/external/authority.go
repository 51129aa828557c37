// Package external holds the certificate and the roots of a control plane in a mesh whose certificates another authority
// issues, for example SPIRE or cert-manager's istio-csr. It has no signing key.
package external

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/security/certpem"
	"github.com/moonsail/moonsail/internal/security/revocation"
)

// ReadEvery is how often files are read. Volumes of Secrets change by renamed links, about which notifications of the file
// system are unreliable.
const ReadEvery = 5 * time.Second

// Options of an Authority: three files, or the address of a SPIFFE Workload API.
type Options struct {
	CertFile string // the control plane's certificate, then intermediates
	KeyFile  string
	RootFile string // roots of the mesh: they verify workloads, other control planes, and CertFile

	WorkloadAPI string // "unix:///path"

	Name  string        // by which proxies connect: the certificate must have it
	Every time.Duration // 0: ReadEvery
	Log   *slog.Logger
	Now   func() time.Time // nil: time.Now
}

// material is what one reading of the source gave.
type material struct {
	pair  *tls.Certificate
	roots []*x509.Certificate
	pool  *x509.CertPool // of roots
	text  string         // roots in PEM
}

// Authority is safe for concurrent use.
type Authority struct {
	opts    Options
	now     func() time.Time
	present atomic.Pointer[material]

	problem    logonce.Problem // of the last reading
	rootErrors logonce.Errors

	mu      sync.Mutex // guards the fields below
	changed chan struct{}
	since   time.Time // of the present material
}

// Open reads the certificate and the roots. It waits for a Workload API that does not answer; files must be there.
func Open(ctx context.Context, o Options) (*Authority, error) {
	a := &Authority{opts: o, now: o.Now, changed: make(chan struct{})}
	if a.now == nil {
		a.now = time.Now
	}
	if o.WorkloadAPI != "" {
		return a, a.awaitAnswer(ctx)
	}
	m, err := a.read()
	if err != nil {
		return nil, err
	}
	a.take(m)
	return a, nil
}

// Run follows changes until ctx ends.
func (a *Authority) Run(ctx context.Context) {
	if a.opts.WorkloadAPI != "" {
		a.follow(ctx)
		return
	}
	tick := time.NewTicker(cmp.Or(a.opts.Every, ReadEvery))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.apply(a.read())
		}
	}
}

// apply takes material, or records an error and keeps the present material.
func (a *Authority) apply(m *material, err error) {
	switch began, ended := a.problem.Note(err); {
	case began:
		a.opts.Log.Warn("the control plane's certificate stays unchanged", "from", a.Place(), "error", err)
	case ended:
		a.opts.Log.Info("the control plane's certificate can be read again", "from", a.Place())
	}
	if err == nil {
		a.take(m)
	}
}

// take makes material the present one, unless it is that already.
func (a *Authority) take(m *material) {
	old := a.present.Load()
	if old != nil && old.text == m.text && slices.EqualFunc(old.pair.Certificate, m.pair.Certificate, slices.Equal) {
		return
	}
	a.present.Store(m)
	a.mu.Lock()
	a.since = a.now()
	if old != nil && old.text != m.text {
		close(a.changed)
		a.changed = make(chan struct{})
	}
	a.mu.Unlock()
	leaf := m.pair.Leaf
	a.opts.Log.Info("the control plane has a certificate of another authority", "from", a.Place(), "issuer", leaf.Issuer.String(),
		"names", namesOf(leaf), "expires", leaf.NotAfter.Format(time.RFC3339), "roots", len(m.roots))
	if a.opts.Name != "" && leaf.VerifyHostname(a.opts.Name) != nil {
		a.opts.Log.Warn("proxies that connect by this name refuse the control plane's certificate: add the name where the certificate is issued",
			"name", a.opts.Name, "names", namesOf(leaf))
	}
}

func namesOf(c *x509.Certificate) string {
	out := slices.Clone(c.DNSNames)
	for _, u := range c.URIs {
		out = append(out, u.String())
	}
	return strings.Join(out, ", ")
}

// newMaterial checks that the certificate is valid now and chains to the roots.
func (a *Authority) newMaterial(pair *tls.Certificate, chain, roots []*x509.Certificate) (*material, error) {
	m := &material{pair: pair, roots: roots, pool: x509.NewCertPool(), text: string(certpem.Encode(roots...))}
	for _, r := range roots {
		m.pool.AddCert(r)
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	options := x509.VerifyOptions{Roots: m.pool, Intermediates: between, CurrentTime: a.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if _, err := chain[0].Verify(options); err != nil {
		return nil, fmt.Errorf("the control plane's certificate does not chain to the mesh's roots: %w", err)
	}
	return m, nil
}

// Place names the source in messages.
func (a *Authority) Place() string {
	if a.opts.WorkloadAPI != "" {
		return "the Workload API at " + a.opts.WorkloadAPI
	}
	return "files " + strings.Join([]string{a.opts.CertFile, a.opts.KeyFile, a.opts.RootFile}, ", ")
}

// Trust returns what verifies peers, and a channel that is closed when it changes.
func (a *Authority) Trust() (t revocation.Trust, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return revocation.Trust{Roots: a.present.Load().text}, a.changed
}

// Revoked returns nothing: lists of another authority are not read.
func (a *Authority) Revoked() *revocation.Lists { return nil }

// Pool returns the roots for verification.
func (a *Authority) Pool() *x509.CertPool { return a.present.Load().pool }

// Now returns the time at which certificates are verified.
func (a *Authority) Now() time.Time { return a.now() }

// RootExpiry returns the first expiry of the roots.
func (a *Authority) RootExpiry() time.Time {
	return slices.MinFunc(a.present.Load().roots, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
}

// ChainExpiry returns the expiry of the control plane's certificate.
func (a *Authority) ChainExpiry() time.Time { return a.present.Load().pair.Leaf.NotAfter }

// ServerTLS returns the configuration of the server. A client may present a certificate, which must be of the mesh.
func (a *Authority) ServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			m := a.present.Load()
			return &tls.Config{
				MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*m.pair},
				ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: m.pool, Time: a.now,
				// A resumed session would not be verified against the present roots.
				SessionTicketsDisabled: true,
			}, nil
		},
	}
}

// PeerTLS returns the configuration for one connection to another control plane, whose certificate has the name server.
func (a *Authority) PeerTLS(server string) (*tls.Config, error) {
	m := a.present.Load()
	if len(m.pair.Leaf.URIs) != 1 {
		return nil, errors.New("the control plane's certificate has no SPIFFE ID, by which other control planes know it: add one where it is issued")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, ServerName: server, RootCAs: m.pool,
		Certificates: []tls.Certificate{*m.pair}, Time: a.now,
	}, nil
}

// IsPeer reports whether a verified certificate is that of a control plane: it has the same SPIFFE ID as this one's.
func (a *Authority) IsPeer(c *x509.Certificate) bool {
	own := a.present.Load().pair.Leaf
	return len(own.URIs) == 1 && ca.IsPeer(c, own.URIs[0].String())
}

// State describes the authority for people.
type State struct {
	Where       string               `json:"where"`
	External    bool                 `json:"external"` // true: the control plane issues no certificates
	Since       time.Time            `json:"since"`
	Problem     string               `json:"problem,omitempty"` // why the last reading is not in force
	Certificate ca.CertificateInfo   `json:"certificate"`       // the control plane's
	Names       string               `json:"names"`             // in the certificate
	Roots       []ca.CertificateInfo `json:"roots"`
}

// State returns the present state.
func (a *Authority) State() State {
	m := a.present.Load()
	a.mu.Lock()
	defer a.mu.Unlock()
	return State{
		Where: a.Place(), External: true, Since: a.since, Problem: a.problem.Text(),
		Certificate: ca.InfoOf(m.pair.Leaf), Names: namesOf(m.pair.Leaf), Roots: ca.InfosOf(m.roots),
	}
}
