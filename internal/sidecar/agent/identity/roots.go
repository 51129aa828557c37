package identity

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
)

// readRoots reads a file of CA certificates, and drops other content.
func readRoots(file string) ([]byte, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("roots of the mesh: %w", err)
	}
	roots, err := certificates(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return encodeCertificates(roots), nil
}

// certificates decodes all certificates of a PEM text. No certificate is an error.
func certificates(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(out)+1, err)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no certificate in PEM")
	}
	return out, nil
}

func encodeCertificates(list []*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, c := range list {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a buffer does not fail
	}
	return b.Bytes()
}

// unite returns the certificates of all texts, each once, in order. It skips texts without certificates.
func unite(texts ...[]byte) []byte {
	var out []*x509.Certificate
	seen := map[string]bool{}
	for _, text := range texts {
		list, _ := certificates(text)
		for _, c := range list {
			if !seen[string(c.Raw)] {
				seen[string(c.Raw)] = true
				out = append(out, c)
			}
		}
	}
	return encodeCertificates(out)
}

func poolOf(roots []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	return pool
}

// setRoots replaces the roots only.
func (r *Renewer) setRoots(roots []byte) {
	old, _ := r.Secrets()
	next := *old
	next.Roots, next.pool = roots, poolOf(roots)
	r.set(&next)
}
