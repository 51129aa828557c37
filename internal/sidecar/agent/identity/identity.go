// Package identity gets the workload's certificate: it generates the private key, has the mesh's CA sign it, renews it
// in time, and knows the roots that verify peers. The key stays in this process's memory. Only Envoy gets it, over a
// Unix socket, and files if they are configured.
package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/logonce"
	"github.com/moonsail/moonsail/internal/security/revocation"
)

// DefaultTTL is the requested lifetime of certificates. DefaultGraceRatio is the remaining part of it at which they are
// renewed. Both are Istio's.
const (
	DefaultTTL        = 24 * time.Hour
	DefaultGraceRatio = 0.5
)

// pollEvery is how often the files of roots and certificates are checked. ConfigMaps change by renamed links, about
// which notifications of the file system are unreliable.
const pollEvery = 2 * time.Second

// Options of a Renewer. Certificates come from the CA at Address, the files in FilesDir, or the WorkloadAPI.
type Options struct {
	Namespace, ServiceAccount string // the identity that the certificate must have
	TrustDomain               string // of the requested identity; the CA decides

	Address     string   // of the CA: "host:port" with TLS, or "unix:///path"
	ServerNames []string // the CA's certificate must have one of them; the first is the SNI
	TokenFile   string   // read for each request
	RootsFile   string   // roots that verify the CA and peers; read again when it changes
	ClusterID   string
	TTL         time.Duration
	GraceRatio  float64 // 0: DefaultGraceRatio; less than 1
	RSABits     int     // 0: ECDSA P-256 keys

	FilesDir  string // holds cert-chain.pem, key.pem and root-cert.pem; read again when they change
	OutputDir string // folder to write the same files to; empty: none

	WorkloadAPI string // address of the SPIFFE Workload API: "unix:///path"

	Metrics *Metrics
	Log     *slog.Logger

	poll   time.Duration // 0: pollEvery
	spread time.Duration // 0: rootsSpread
}

// Secrets are a workload's certificate, key and roots. They are immutable; the Renewer makes new ones.
type Secrets struct {
	Chain []byte // PEM: the workload's certificate, then intermediates; nil until there is one
	Key   []byte // PEM
	Roots []byte // PEM; nil until they are known
	// Revoked are lists of revoked certificates, in PEM; nil: none.
	Revoked []byte
	// Federated are the roots of other trust domains, whose workloads are peers, too. Roots are then those of TrustDomain
	// only. Without them Roots verify every peer.
	Federated   []Bundle
	TrustDomain string // of the workload's certificate; set if there are Federated bundles

	pair *tls.Certificate // of Chain and Key
	pool *x509.CertPool   // of Roots
	got  time.Time

	answerRoots []byte            // the part of Roots that the CA sent
	revoked     *revocation.Lists // of Revoked
}

// Bundle are the roots of a trust domain.
type Bundle struct {
	TrustDomain string
	Roots       []byte // PEM
}

// Leaf returns the workload's certificate; nil until there is one.
func (s *Secrets) Leaf() *x509.Certificate {
	if s.pair == nil {
		return nil
	}
	return s.pair.Leaf
}

// Renewer gets and renews one workload's secrets in Run. The other methods may be called from any goroutine.
type Renewer struct {
	Options
	fileRoots  []byte            // as last read; used by Run only, as the next four fields
	lists      *revocation.Lists // as last read, beside the roots; nil: none
	listErrors logonce.Errors
	rootErrors logonce.Errors // of RootsFile, or of the file in FilesDir
	backoff    backoff
	unwritten  bool // the files in OutputDir are older than secrets

	mu       sync.Mutex // guards the fields below
	secrets  *Secrets
	changed  chan struct{} // closed and replaced when secrets change
	problem  error         // the last error; nil after a success
	attempts int           // failures since the last success
	renewAt  time.Time
	leftOut  error // why secrets do not have all roots of the file; nil: they have
}

// New reads the roots and checks the options. Run gets the certificate.
func New(o Options) (*Renewer, error) {
	r := &Renewer{Options: o, secrets: &Secrets{}, changed: make(chan struct{})}
	if r.TTL == 0 {
		r.TTL = DefaultTTL
	}
	if r.GraceRatio == 0 {
		r.GraceRatio = DefaultGraceRatio
	}
	if err := r.checkTimes(); err != nil {
		return nil, err
	}
	if bits := r.RSABits; bits != 0 && (bits < 2048 || bits > 8192) {
		return nil, fmt.Errorf("invalid RSA key size %d: use 2048 to 8192: correct --rsa-key-size", bits)
	}
	if r.FilesDir != "" || r.WorkloadAPI != "" || r.RootsFile == "" {
		return r, nil
	}
	roots, leftOut, err := readRoots(r.RootsFile)
	if err != nil {
		return nil, fmt.Errorf("%w: correct --xds-root-cert", err)
	}
	r.noteRoots(r.RootsFile, leftOut, nil)
	if r.lists, err = readRevoked(r.RootsFile, roots); err != nil {
		r.Log.Warn("no revoked certificate is refused", "error", err)
	}
	r.fileRoots = roots
	r.setRoots(roots)
	return r, nil
}

func (r *Renewer) checkTimes() error {
	switch {
	case r.TTL < time.Minute && r.poll == 0:
		return fmt.Errorf("invalid lifetime of certificates %s: use a minute or more: correct --cert-ttl", r.TTL)
	case r.GraceRatio <= 0 || r.GraceRatio >= 1:
		return fmt.Errorf("invalid grace ratio %g: use a number between 0 and 1: correct --cert-grace-period-ratio", r.GraceRatio)
	case time.Duration(float64(r.TTL)*(1-r.GraceRatio)) < time.Second && r.poll == 0:
		return fmt.Errorf("certificates that live for %s and are renewed with %g of that left would be renewed all the time: lower --cert-grace-period-ratio", r.TTL, r.GraceRatio)
	}
	return nil
}

// Secrets returns the present secrets, and a channel that is closed when they change.
func (r *Renewer) Secrets() (*Secrets, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.secrets, r.changed
}

// Problem returns why there is no certificate yet; nil if there is one.
func (r *Renewer) Problem() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.secrets.pair != nil:
		return nil
	case r.problem != nil:
		return fmt.Errorf("no certificate yet: %w", r.problem)
	}
	return fmt.Errorf("no certificate yet: %s has not answered", r.place())
}

// place describes the source of certificates in messages.
func (r *Renewer) place() string {
	switch {
	case r.FilesDir != "":
		return "folder " + r.FilesDir
	case r.WorkloadAPI != "":
		return "the Workload API at " + r.WorkloadAPI
	}
	return "the CA at " + r.Address
}

// ClientTLS is TLS to the control plane: it trusts the mesh's roots, and presents the certificate while that is valid.
func (r *Renewer) ClientTLS(names []string) *tls.Config {
	s, _ := r.Secrets()
	return s.clientTLS(s.valid(time.Now()), names)
}

// valid returns the certificate if it is valid.
func (s *Secrets) valid(now time.Time) *tls.Certificate {
	if s.pair == nil || now.After(s.pair.Leaf.NotAfter) {
		return nil
	}
	return s.pair
}

// set publishes new secrets, and writes the files of OutputDir.
func (r *Renewer) set(s *Secrets) {
	r.mu.Lock()
	old := r.secrets
	same := bytes.Equal(old.Chain, s.Chain) && bytes.Equal(old.Roots, s.Roots) && bytes.Equal(old.Key, s.Key) && bytes.Equal(old.Revoked, s.Revoked) &&
		slices.EqualFunc(old.Federated, s.Federated, Bundle.equal)
	if !same {
		r.secrets = s
		close(r.changed)
		r.changed = make(chan struct{})
	}
	r.mu.Unlock()
	if same {
		return
	}
	r.Metrics.observe(s)
	err := r.write(s)
	if r.unwritten = err != nil; r.unwritten {
		r.Metrics.fileFailure()
		r.Log.Error("certificates not written; the next attempt follows", "folder", r.OutputDir, "error", err)
	}
}

// writeAgain writes files that could not be written before, for example on a full disk.
func (r *Renewer) writeAgain() {
	if !r.unwritten {
		return
	}
	if s, _ := r.Secrets(); r.write(s) == nil {
		r.unwritten = false
		r.Log.Info("certificates written", "folder", r.OutputDir)
	}
}
