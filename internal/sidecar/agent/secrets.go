package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
)

// NoCA as CA.Address: the workload gets no certificate.
const NoCA = "none"

// Where an injected sidecar finds its token and its roots, as in Istio.
const (
	DefaultTokenFile = "/var/run/secrets/tokens/istio-token"
	DefaultRootCert  = "/var/run/secrets/istio/root-cert.pem"
)

// CA says where the workload's certificate comes from.
type CA struct {
	// Address of the CA, as "host:port" with TLS, or "unix:///path". Empty: the control
	// plane's if that is reached with TLS, else none. NoCA: none.
	Address     string
	TokenFile   string        // who this is, for the first certificate; empty: DefaultTokenFile
	TTL         time.Duration // of certificates; 0: identity.DefaultTTL
	GraceRatio  float64       // the part of a certificate's life that is left when it is renewed; 0: identity.DefaultGraceRatio
	RSABits     int           // 0: keys are ECDSA P-256
	TrustDomain string        // of the name that is asked for; empty: "cluster.local"

	MountedCerts string // a folder with cert-chain.pem, key.pem and root-cert.pem that somebody renews; instead of a CA
	OutputCerts  string // a folder where certificates are written for others; empty: nowhere
}

func (s *settings) resolveCA() error {
	s.CA.TokenFile = orDefault(s.CA.TokenFile, DefaultTokenFile)
	s.CA.TrustDomain = orDefault(s.CA.TrustDomain, "cluster.local")
	if s.CA.MountedCerts != "" {
		s.identified = true
		return nil
	}
	address := s.CA.Address
	if address == "" && !s.XDS.Plaintext {
		address = s.XDS.Address
	}
	if address == "" || address == NoCA {
		return nil
	}
	s.caAddress, s.identified = address, true
	return s.checkCA()
}

func (s *settings) checkCA() error {
	if socketPath(s.caAddress) != "" {
		return nil
	}
	host, _, err := net.SplitHostPort(s.caAddress)
	if err == nil && host == "" {
		err = errors.New("no host")
	}
	if err != nil {
		return fmt.Errorf("CA address %q: %w: --ca-address wants host:port, unix:///path or %s", s.caAddress, err, NoCA)
	}
	return s.resolveRoots("the CA at " + s.caAddress)
}

// caHost is whom the CA's certificate must be for.
func (s *settings) caHost() string {
	if host, _, err := net.SplitHostPort(s.caAddress); err == nil && !strings.HasPrefix(s.caAddress, "unix:") {
		return host
	}
	return ""
}

// startIdentity begins to get certificates, to be served by stop's end: a sidecar that drains
// still talks to the control plane.
func (a *agent) startIdentity(ctx context.Context) (stop func(), err error) {
	if !a.identified {
		return func() {}, nil
	}
	a.identity, err = identity.New(identity.Options{
		Namespace: a.Workload.Namespace, ServiceAccount: a.Workload.ServiceAccount, TrustDomain: a.CA.TrustDomain,
		Address: a.caAddress, ServerNames: a.serverNames(a.caHost()), TokenFile: a.CA.TokenFile, RootsFile: a.XDS.RootCert,
		ClusterID: a.ClusterID, TTL: a.CA.TTL, GraceRatio: a.CA.GraceRatio, RSABits: a.CA.RSABits,
		FilesDir: a.CA.MountedCerts, OutputDir: a.CA.OutputCerts, Metrics: identity.NewMetrics(a.metrics.registry), Log: a.log,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.identity.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}, nil
}

// handleIdentity tells of the certificate, but for its key.
func (a *agent) handleIdentity(w http.ResponseWriter, _ *http.Request) {
	if a.identity == nil {
		refuse(w, http.StatusNotFound, "this workload has no identity", "see --ca-address")
		return
	}
	writeJSON(w, a.identity.State())
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the asker has gone
}
