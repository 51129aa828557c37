package identity

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/moonsail/moonsail/internal/security/certpem"
	"github.com/moonsail/moonsail/internal/security/revocation"
)

// readRoots reads a file of CA certificates, and drops other content. leftOut describes certificates that cannot be read.
func readRoots(file string) (roots []byte, leftOut, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("roots of the mesh: %w", err)
	}
	list, leftOut, err := certpem.DecodeRoots(content)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return certpem.Encode(list...), leftOut, nil
}

// noteRoots logs, once, roots that cannot be read.
func (r *Renewer) noteRoots(from string, leftOut, err error) {
	if err == nil {
		r.mu.Lock()
		r.leftOut = leftOut
		r.mu.Unlock()
	}
	switch {
	case !r.rootErrors.New(cmp.Or(err, leftOut)):
	case err == nil:
		r.Log.Warn("a part of the mesh's roots is left out: peers under them are refused", "from", from, "reasons", leftOut)
	default:
		r.Log.Warn("the mesh's roots stay unchanged", "from", from, "error", err)
	}
}

// unite returns the certificates of all texts that can be read, each once, in order.
func unite(texts ...[]byte) []byte {
	var out []*x509.Certificate
	seen := map[string]bool{}
	for _, text := range texts {
		list, _, _ := certpem.DecodeRoots(text)
		for _, c := range list {
			if !seen[string(c.Raw)] {
				seen[string(c.Raw)] = true
				out = append(out, c)
			}
		}
	}
	return certpem.Encode(out...)
}

func poolOf(roots []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	return pool
}

// setRoots replaces the roots and the lists of revoked certificates only.
func (r *Renewer) setRoots(roots []byte) {
	old, _ := r.Secrets()
	next := *old
	next.Roots, next.pool = roots, poolOf(roots)
	next.setRevoked(r.lists)
	r.set(&next)
}

func (s *Secrets) setRevoked(lists *revocation.Lists) {
	s.Revoked, s.revoked = nil, lists
	if lists != nil {
		s.Revoked = []byte(lists.PEM())
	}
}

// readLists reads the lists, and reports whether they have changed. Invalid ones, or a part of them, change nothing.
func (r *Renewer) readLists(roots []byte) bool {
	lists, err := readRevoked(r.RootsFile, roots)
	if r.listErrors.New(err) {
		r.Log.Warn("the lists of revoked certificates stay unchanged", "error", err)
	}
	if err != nil || lists.PEM() == r.lists.PEM() {
		return false
	}
	r.lists = lists
	return true
}

// readRevoked reads the lists beside a file of roots; nil: the file of lists does not exist. Each root must have a list, or
// Envoy would refuse every peer.
func readRevoked(rootsFile string, roots []byte) (*revocation.Lists, error) {
	file := filepath.Join(filepath.Dir(rootsFile), revocation.FileName)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lists, err := revocation.Parse(text)
	if err == nil {
		known, _ := certpem.Decode(roots) // they were decoded before
		err = lists.Covers(known, time.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return lists, nil
}
