package identity

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/moonsail/moonsail/internal/base/atomicfile"
	"github.com/moonsail/moonsail/internal/security/certpem"
)

// Names of the files, as in Istio.
const (
	chainFile = "cert-chain.pem"
	keyFile   = "key.pem"
	rootFile  = "root-cert.pem"
)

// ClusterVariable is the environment variable that Kubernetes sets in each container.
const ClusterVariable = "KUBERNETES_SERVICE_HOST"

// readFiles reads a certificate that another program renews.
func (r *Renewer) readFiles() (*Secrets, error) {
	var content [3][]byte
	for i, name := range []string{chainFile, keyFile, rootFile} {
		var err error
		if content[i], err = os.ReadFile(filepath.Join(r.FilesDir, name)); err != nil {
			r.Metrics.fileFailure()
			return nil, fmt.Errorf("%w: correct --mounted-certs", err)
		}
	}
	s, err := r.fromFiles(content[0], content[1], content[2])
	if err != nil {
		r.Metrics.fileFailure()
		return nil, fmt.Errorf("%s: %w", r.place(), err)
	}
	return s, nil
}

func (r *Renewer) fromFiles(chainText, keyText, rootsText []byte) (*Secrets, error) {
	chain, err := certpem.Decode(chainText)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", chainFile, err)
	}
	_, leftOut, err := certpem.DecodeRoots(rootsText)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", rootFile, err)
	}
	r.noteRoots(filepath.Join(r.FilesDir, rootFile), leftOut, nil)
	pair, err := tls.X509KeyPair(chainText, keyText)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", chainFile, keyFile, err)
	}
	s := &Secrets{Chain: unite(chainText), Key: keyText, Roots: unite(rootsText), pair: pairOf(chain, pair.PrivateKey), got: time.Now()}
	s.pool = poolOf(s.Roots)
	return s, r.check(s, chain)
}

// filesChanged reports whether a file differs from the present secrets.
func (r *Renewer) filesChanged() bool {
	s, _ := r.Secrets()
	for name, have := range map[string][]byte{chainFile: s.Chain, keyFile: s.Key, rootFile: s.Roots} {
		content, err := os.ReadFile(filepath.Join(r.FilesDir, name))
		if err != nil {
			return false // the change may be incomplete
		}
		if name != keyFile {
			content = unite(content)
		}
		if !bytes.Equal(content, have) {
			return true
		}
	}
	return false
}

// fileModes returns the modes of written files and their folder. Only the owner may read them, except in Kubernetes, as in Istio:
// there they are for other containers of the Pod, whose users differ, and what the containers mount protects them.
func fileModes() (file, folder os.FileMode) {
	if os.Getenv(ClusterVariable) != "" {
		return 0o644, 0o755
	}
	return 0o600, 0o700
}

// write writes the secrets into files. Each file is replaced atomically.
func (r *Renewer) write(s *Secrets) error {
	if r.OutputDir == "" || s.pair == nil {
		return nil
	}
	mode, folder := fileModes()
	if err := os.MkdirAll(r.OutputDir, folder); err != nil {
		return err
	}
	// The key comes first: a reader between the writes finds that it does not match the chain, and reads again.
	for _, f := range []struct {
		name    string
		content []byte
	}{{keyFile, s.Key}, {chainFile, s.Chain}, {rootFile, s.Roots}} {
		if err := atomicfile.WriteMode(filepath.Join(r.OutputDir, f.name), f.content, mode); err != nil {
			return err
		}
	}
	return nil
}
