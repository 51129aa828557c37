package identity

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/security/certpem"
)

// accept decodes and checks the CA's answer: the certificate, intermediates, and last the roots, as Istio's CA sends
// them.
func (r *Renewer) accept(key crypto.Signer, answer []string) (*Secrets, error) {
	if len(answer) == 0 {
		return nil, errors.New("no certificate")
	}
	var roots []byte
	last := len(answer)
	if last > 1 {
		last--
		list, leftOut, err := certpem.DecodeRoots([]byte(answer[last]))
		if err != nil {
			return nil, fmt.Errorf("roots: %w", err)
		}
		if leftOut != nil {
			r.Log.Warn("a part of the CA's roots is left out: peers under them are refused", "from", r.place(), "reasons", leftOut)
		}
		roots = certpem.Encode(list...)
	}
	chain, err := certpem.Decode([]byte(strings.Join(answer[:last], "\n")))
	if err != nil {
		return nil, err
	}
	encoded, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	s := &Secrets{
		Chain: certpem.Encode(chain...), Key: encoded, Roots: unite(r.fileRoots, roots), answerRoots: roots,
		pair: pairOf(chain, key), got: time.Now(),
	}
	s.pool = poolOf(s.Roots)
	s.setRevoked(r.lists)
	return s, r.check(s, chain)
}

func pairOf(chain []*x509.Certificate, key crypto.PrivateKey) *tls.Certificate {
	pair := &tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, c := range chain {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	return pair
}

// check requires that the certificate has this key and identity, is valid, and chains to the roots.
func (r *Renewer) check(s *Secrets, chain []*x509.Certificate) error {
	leaf, key := chain[0], s.pair.PrivateKey.(crypto.Signer)
	if public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); !ok || !public.Equal(key.Public()) {
		return errors.New("the certificate is for another key")
	}
	if now := time.Now(); now.After(leaf.NotAfter) {
		return fmt.Errorf("the certificate expired at %s (this machine's clock is at %s)", leaf.NotAfter.Format(time.RFC3339), now.Format(time.RFC3339))
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: s.pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		return fmt.Errorf("the certificate does not chain to the mesh's roots: %w", err)
	}
	return r.checkName(leaf)
}

func (r *Renewer) checkName(leaf *x509.Certificate) error {
	suffix := fmt.Sprintf("/ns/%s/sa/%s", r.Namespace, r.ServiceAccount)
	var ids []string
	for _, u := range leaf.URIs {
		ids = append(ids, u.String())
	}
	if !slices.ContainsFunc(ids, func(id string) bool { return strings.HasPrefix(id, "spiffe://") && strings.HasSuffix(id, suffix) }) {
		return fmt.Errorf("the certificate is for %s, but this workload has namespace %s and service account %s: "+
			"correct --token-file, --namespace or --service-account", orNone(ids), r.Namespace, r.ServiceAccount)
	}
	return nil
}

func orNone(ids []string) string {
	if len(ids) == 0 {
		return "no identity"
	}
	return strings.Join(ids, ", ")
}

// id returns the SPIFFE id of the certificate; "" without one.
func (s *Secrets) id() string {
	if c := s.Leaf(); c != nil && len(c.URIs) > 0 {
		return c.URIs[0].String()
	}
	return ""
}
