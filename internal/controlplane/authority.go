package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/security/external"
	"github.com/moonsail/moonsail/internal/security/revocation"
)

// authority is what the port with TLS needs of a certificate authority: the mesh's own, or an external one.
type authority interface {
	Run(ctx context.Context)
	// Trust returns what verifies peers, and a channel that is closed when it changes.
	Trust() (revocation.Trust, <-chan struct{})
	Pool() *x509.CertPool
	Revoked() *revocation.Lists
	Now() time.Time
	RootExpiry() time.Time
	ChainExpiry() time.Time

	// serverTLS returns the configuration of a server with names, if the authority chooses them.
	serverTLS(names []string) *tls.Config
	// peerTLS returns the configuration of connections to other control planes, whose certificates have the name server.
	peerTLS(server string, name func() string) func() (*tls.Config, error)
	isPeer(c *x509.Certificate, trustDomains []string, rootNamespace string) bool
	// publishes reports whether the control plane writes the roots into the ConfigMaps of namespaces.
	publishes() bool
	place() string // for messages
	state() any    // for the debug page
}

// openAuthority opens the authority. It waits for a cluster or a Workload API that does not answer.
func (s *secure) openAuthority(ctx context.Context) (authority, error) {
	o := &s.opts.Identity
	if e := o.External; e != (ExternalAuthority{}) {
		a, err := external.Open(ctx, external.Options{
			CertFile: e.CertFile, KeyFile: e.KeyFile, RootFile: e.RootFile, WorkloadAPI: e.WorkloadAPI,
			Name: controlPlaneName(s.opts.Mesh.RootNamespace), Every: o.ReadEvery, Log: s.opts.Log,
		})
		return externalAuthority{a, e.WorkloadAPI != ""}, err
	}
	var place ca.Store = ca.Dir{Path: o.CADir, ReadOnly: s.client != nil}
	if o.CADir == "" {
		secrets, err := s.client.Secrets(s.opts.Mesh.RootNamespace)
		if err != nil {
			return nil, err
		}
		place = &secretStore{secrets: secrets, namespace: s.opts.Mesh.RootNamespace}
	}
	a, err := ca.Open(ctx, ca.Options{
		Store: place, TTL: o.TTL, MaxTTL: o.MaxTTL, Every: o.ReadEvery, Organization: s.opts.Mesh.TrustDomain,
		RetryOpen: o.CADir == "", Log: s.opts.Log,
	})
	return ownAuthority{a}, err
}

// controlPlaneName is the name by which proxies and other control planes connect: that of Istio's Service.
func controlPlaneName(rootNamespace string) string { return "istiod." + rootNamespace + ".svc" }

// ownAuthority is the control plane's.
type ownAuthority struct{ *ca.Authority }

func (a ownAuthority) serverTLS(names []string) *tls.Config { return a.ServerTLS(names) }

func (a ownAuthority) peerTLS(server string, name func() string) func() (*tls.Config, error) {
	return a.Peering(server, name).TLS
}

func (ownAuthority) isPeer(c *x509.Certificate, trustDomains []string, rootNamespace string) bool {
	for _, domain := range trustDomains {
		if ca.IsPeer(c, ca.PeerName(domain, rootNamespace)) {
			return true
		}
	}
	return false
}

func (ownAuthority) publishes() bool { return true }
func (a ownAuthority) place() string { return a.State().Where }
func (a ownAuthority) state() any    { return a.State() }

// externalAuthority is another one.
type externalAuthority struct {
	*external.Authority
	workloadAPI bool
}

// serverTLS ignores names: the other authority chooses them.
func (a externalAuthority) serverTLS([]string) *tls.Config { return a.ServerTLS() }

func (a externalAuthority) peerTLS(server string, _ func() string) func() (*tls.Config, error) {
	return func() (*tls.Config, error) { return a.PeerTLS(server) }
}

func (a externalAuthority) isPeer(c *x509.Certificate, _ []string, _ string) bool { return a.IsPeer(c) }

// publishes returns false for a certificate in files. Its issuer publishes the roots, as istio-csr does.
func (a externalAuthority) publishes() bool { return a.workloadAPI }
func (a externalAuthority) place() string   { return a.Place() }
func (a externalAuthority) state() any      { return a.State() }
