// Package identity gives a workload its certificate: it makes the private key, has the
// mesh's CA sign it, renews it in time, and knows which roots peers are checked by. The key
// lives in this process's memory; it goes to Envoy over a Unix socket, and into files only
// where that was asked for.
package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// DefaultTTL is the life that a certificate is asked for with, and DefaultGraceRatio the part
// of it that is left when it is renewed, as in Istio.
const (
	DefaultTTL        = 24 * time.Hour
	DefaultGraceRatio = 0.5
)

// pollEvery is how often files of roots and of certificates are read again: they change by
// renamed links (ConfigMaps), which notifications of the file system tell badly.
const pollEvery = 2 * time.Second

// Options of a Keeper. Certificates come from the CA at Address, or from the files in
// FilesDir.
type Options struct {
	Namespace, ServiceAccount string // whom the certificate must be for
	TrustDomain               string // of what is asked for; the CA decides

	Address     string   // of the CA: "host:port" with TLS, or "unix:///path"
	ServerNames []string // one of which the CA's certificate must be for; the first is asked for
	TokenFile   string   // read again for each request
	RootsFile   string   // what the CA is checked by, and peers too; read again when it changes
	ClusterID   string
	TTL         time.Duration
	GraceRatio  float64 // 0: DefaultGraceRatio; less than 1
	RSABits     int     // 0: keys are ECDSA P-256

	FilesDir  string // holds cert-chain.pem, key.pem and root-cert.pem; read again when they change
	OutputDir string // where the same files are written; empty: nowhere

	Metrics *Metrics
	Log     *slog.Logger

	poll   time.Duration // 0: pollEvery
	spread time.Duration // 0: rootsSpread
}

// Secrets are what proxies get. They never change; the Keeper makes new ones.
type Secrets struct {
	Chain []byte // PEM: the workload's certificate, then intermediates; nil until there is one
	Key   []byte // PEM
	Roots []byte // PEM; nil until any are known

	pair *tls.Certificate // of Chain and Key
	pool *x509.CertPool   // of Roots
	got  time.Time

	answerRoots []byte // of Roots those that the CA told
}

// Leaf is the workload's certificate; nil until there is one.
func (s *Secrets) Leaf() *x509.Certificate {
	if s.pair == nil {
		return nil
	}
	return s.pair.Leaf
}

// Renewer keeps one workload's secrets. Run does the work; the rest may be called from
// anywhere.
type Renewer struct {
	Options
	fileRoots []byte // as last read; Run's, as are the next two
	backoff   backoff
	unwritten bool // what is in OutputDir is older than secrets

	mu       sync.Mutex // guards what follows
	secrets  *Secrets
	changed  chan struct{} // closed, and made anew, when secrets change
	problem  error         // why the last attempt failed; nil after a success
	attempts int           // that failed since the last success
	renewAt  time.Time
}

// New reads the roots, and checks the options; Run gets the certificate.
func New(o Options) (*Renewer, error) {
	k := &Renewer{Options: o, secrets: &Secrets{}, changed: make(chan struct{})}
	if k.TTL == 0 {
		k.TTL = DefaultTTL
	}
	if k.GraceRatio == 0 {
		k.GraceRatio = DefaultGraceRatio
	}
	if err := k.checkTimes(); err != nil {
		return nil, err
	}
	if bits := k.RSABits; bits != 0 && (bits < 2048 || bits > 8192) {
		return nil, fmt.Errorf("RSA keys of %d bits are none that the mesh takes: --rsa-key-size wants 2048 to 8192", bits)
	}
	if k.FilesDir != "" || k.RootsFile == "" {
		return k, nil
	}
	roots, err := readRoots(k.RootsFile)
	if err != nil {
		return nil, fmt.Errorf("%w: correct --xds-root-cert", err)
	}
	k.fileRoots = roots
	k.setRoots(roots)
	return k, nil
}

func (k *Renewer) checkTimes() error {
	switch {
	case k.TTL < time.Minute && k.poll == 0:
		return fmt.Errorf("certificates that live for %s are renewed all the time: --cert-ttl wants a minute or more", k.TTL)
	case k.GraceRatio <= 0 || k.GraceRatio >= 1:
		return fmt.Errorf("certificates are renewed when %g of their life is left: --cert-grace-period-ratio is between 0 and 1", k.GraceRatio)
	case time.Duration(float64(k.TTL)*(1-k.GraceRatio)) < time.Second && k.poll == 0:
		return fmt.Errorf("certificates that live for %s, and are renewed when %g of that is left, are renewed all the time: lower --cert-grace-period-ratio", k.TTL, k.GraceRatio)
	}
	return nil
}

// Secrets are the present ones, and a channel that is closed when there are others.
func (k *Renewer) Secrets() (*Secrets, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.secrets, k.changed
}

// Problem says why there is no certificate yet; nil when there is one.
func (k *Renewer) Problem() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.secrets.pair != nil:
		return nil
	case k.problem != nil:
		return fmt.Errorf("no certificate yet: %w", k.problem)
	}
	return fmt.Errorf("no certificate yet: %s has not answered", k.place())
}

// place is where certificates come from, for people.
func (k *Renewer) place() string {
	if k.FilesDir != "" {
		return "folder " + k.FilesDir
	}
	return "the CA at " + k.Address
}

// ClientTLS is how this workload talks to the control plane: it trusts the mesh's roots, and
// shows its certificate where it has one that is valid.
func (k *Renewer) ClientTLS(names []string) *tls.Config {
	s, _ := k.Secrets()
	return clientTLS(s.pool, s.valid(time.Now()), names)
}

// valid is the certificate while it may be shown.
func (s *Secrets) valid(now time.Time) *tls.Certificate {
	if s.pair == nil || now.After(s.pair.Leaf.NotAfter) {
		return nil
	}
	return s.pair
}

// set hands new secrets out, and writes them where they are wanted as files.
func (k *Renewer) set(s *Secrets) {
	k.mu.Lock()
	old := k.secrets
	same := bytes.Equal(old.Chain, s.Chain) && bytes.Equal(old.Roots, s.Roots) && bytes.Equal(old.Key, s.Key)
	if !same {
		k.secrets = s
		close(k.changed)
		k.changed = make(chan struct{})
	}
	k.mu.Unlock()
	if same {
		return
	}
	k.Metrics.observe(s)
	err := k.write(s)
	if k.unwritten = err != nil; k.unwritten {
		k.Metrics.fileFailure()
		k.Log.Error("certificates not written; it is tried again", "folder", k.OutputDir, "error", err)
	}
}

// writeAgain writes what could not be written when it was new: the disk may have been full.
func (k *Renewer) writeAgain() {
	if !k.unwritten {
		return
	}
	if s, _ := k.Secrets(); k.write(s) == nil {
		k.unwritten = false
		k.Log.Info("certificates are written", "folder", k.OutputDir)
	}
}
