package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/security/certpem"
	"github.com/moonsail/moonsail/internal/security/revocation"
)

// signer has the key that signs certificates and the roots that verify them. It is immutable.
type signer struct {
	contents *Contents
	stamp    string // fingerprint of the files

	cert  *x509.Certificate
	key   crypto.Signer
	chain []*x509.Certificate // between a leaf and the root, without the root
	root  *x509.Certificate   // of the chain
	roots []*x509.Certificate
	pool  *x509.CertPool // of roots

	chainPEM []string
	rootPEM  string
	revoked  *revocation.Lists // nil: nothing is revoked
	unread   error             // why revoked is not what contents has; nil: it is
}

// newSigner decodes and checks files. Errors name the file.
func newSigner(c *Contents, now time.Time) (*signer, error) {
	s := &signer{contents: c, stamp: c.Files.fingerprint()}
	cert, err := onlyCertificate(c.Files, CertFile)
	if err != nil {
		return nil, err
	}
	s.cert = cert
	if s.key, err = parseKey(c.Files[KeyFile]); err != nil {
		return nil, fmt.Errorf("%s: %w", KeyFile, err)
	}
	if err := s.checkCert(now); err != nil {
		return nil, fmt.Errorf("%s: %w", CertFile, err)
	}
	if err := s.takeRoots(c.Files); err != nil {
		return nil, fmt.Errorf("%s: %w", RootFile, err)
	}
	if err := s.takeChain(c.Files, now); err != nil {
		return nil, fmt.Errorf("%s: %w", ChainFile, err)
	}
	if err := s.verifyIssued(now); err != nil {
		return nil, fmt.Errorf("%s: peers would refuse the certificates that it signs: %w", CertFile, err)
	}
	return s, nil
}

// takeRevoked decodes lists of revoked certificates. Invalid ones do not replace those of the signer before, which may be
// nil, and do not delay a new certificate or root, unless peers would then refuse what the new certificate signs.
func (s *signer) takeRevoked(before *signer, now time.Time) error {
	lists, err := revocation.Parse(s.contents.Files[RevokedFile])
	if err == nil {
		err = lists.Covers(append(slices.Clone(s.chain), s.roots...), now)
	}
	if err == nil {
		s.revoked = lists
		return nil
	}
	s.unread = fmt.Errorf("%s: %s: %w", s.contents.Where, RevokedFile, err)
	if before == nil {
		return nil
	}
	s.revoked = before.revoked
	if s.revoked.Covers(append(slices.Clone(s.chain), s.root), now) != nil {
		return s.unread
	}
	return nil
}

// verifyIssued signs a workload's certificate and verifies it as peers do. A CA may chain to a root without the right to sign
// certificates for clients or servers, or any certificate below it (a path length of 0 further up).
func (s *signer) verifyIssued(now time.Time) error {
	template, err := s.leaf(time.Hour, now)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	pair, err := s.pair(template, key)
	if err != nil {
		return err
	}
	between := poolOf(s.chain)
	for _, usage := range template.ExtKeyUsage {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{
			Roots: s.pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
		}); err != nil {
			return err
		}
	}
	return nil
}

// checkCert checks that the certificate may sign others and belongs to the key.
func (s *signer) checkCert(now time.Time) error {
	public, ok := s.cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !ok || !public.Equal(s.key.Public()):
		return fmt.Errorf("its key is not that of %s", KeyFile)
	case !s.cert.IsCA || !s.cert.BasicConstraintsValid:
		return errors.New("not a CA certificate: it lacks the basic constraint CA:TRUE")
	case s.cert.KeyUsage != 0 && s.cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("its key usage does not allow signing of certificates (keyCertSign)")
	}
	return checkTime(s.cert, now)
}

func checkTime(c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("it expired at %s", c.NotAfter.Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Errorf("it is not valid before %s", c.NotBefore.Format(time.RFC3339))
	}
	return nil
}

// takeRoots decodes the roots. A self-signed signing certificate may be its own root.
func (s *signer) takeRoots(f Files) (err error) {
	if len(f[RootFile]) > 0 {
		if s.roots, err = parseCertificates(f[RootFile]); err != nil {
			return err
		}
	} else if !selfSigned(s.cert) {
		return fmt.Errorf("missing: %s is signed by %q, which workloads must trust", CertFile, s.cert.Issuer)
	} else {
		s.roots = []*x509.Certificate{s.cert}
	}
	s.pool = x509.NewCertPool()
	for _, r := range s.roots {
		if !r.IsCA {
			return fmt.Errorf("%q is not a CA certificate", r.Subject)
		}
		s.pool.AddCert(r)
		s.rootPEM += encode(r)
	}
	return nil
}

// takeChain decodes the intermediates, and checks that the certificate chains to a root with them.
func (s *signer) takeChain(f Files, now time.Time) error {
	var given []*x509.Certificate
	if len(f[ChainFile]) > 0 {
		var err error
		if given, err = parseCertificates(f[ChainFile]); err != nil {
			return err
		}
	}
	chains, err := s.cert.Verify(x509.VerifyOptions{
		Roots: s.pool, Intermediates: poolOf(given), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return fmt.Errorf("%s does not chain to a certificate of %s: %w", CertFile, RootFile, err)
	}
	longest := slices.MaxFunc(chains, func(a, b []*x509.Certificate) int { return endOf(a).Compare(endOf(b)) })
	s.chain, s.root = longest[:len(longest)-1], longest[len(longest)-1]
	for _, c := range s.chain {
		s.chainPEM = append(s.chainPEM, encode(c))
	}
	return nil
}

func poolOf(list []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range list {
		pool.AddCert(c)
	}
	return pool
}

func selfSigned(c *x509.Certificate) bool { return c.CheckSignatureFrom(c) == nil }

// expiry returns the time until which a certificate that is signed now can be verified.
func (s *signer) expiry() time.Time {
	return endOf(append(s.chain[:len(s.chain):len(s.chain)], s.root))
}

// endOf returns the first expiry of a chain.
func endOf(chain []*x509.Certificate) time.Time {
	return slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter
}

// expiringFile names the file with the certificate that expires at expiry.
func (s *signer) expiringFile() string {
	switch end := s.expiry(); {
	case end.Equal(s.cert.NotAfter):
		return CertFile
	case end.Equal(s.root.NotAfter):
		return RootFile
	}
	return ChainFile
}

func encode(c *x509.Certificate) string { return string(certpem.Encode(c)) }

func onlyCertificate(f Files, name string) (*x509.Certificate, error) {
	if len(f[name]) == 0 {
		return nil, fmt.Errorf("%s: missing", name)
	}
	list, err := parseCertificates(f[name])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list[0], nil
}

// parseCertificates decodes one or more certificates in PEM.
func parseCertificates(b []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("a %s instead of a certificate", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(out)+1, err)
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("no certificate in PEM")
	}
	if rest := strings.TrimSpace(string(b)); rest != "" {
		return nil, fmt.Errorf("the text after certificate %d is not PEM", len(out))
	}
	return out, nil
}

// parseKey decodes a private key in PEM: PKCS #8, PKCS #1 or SEC 1.
func parseKey(b []byte) (crypto.Signer, error) {
	if len(b) == 0 {
		return nil, errors.New("missing")
	}
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			return nil, errors.New("no private key in PEM")
		}
		if !strings.HasSuffix(block.Type, "PRIVATE KEY") {
			continue // "EC PARAMETERS" of openssl
		}
		if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["DEK-Info"] != "" {
			return nil, errors.New("encrypted keys are not supported: decrypt it")
		}
		return privateKey(block)
	}
}

func privateKey(block *pem.Block) (crypto.Signer, error) {
	key, err := parsePrivate(block)
	if err != nil {
		return nil, err
	}
	if err := checkPublic(key.Public()); err != nil {
		return nil, err
	}
	return key, nil
}

func parsePrivate(block *pem.Block) (crypto.Signer, error) {
	switch block.Type {
	case "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	if s, ok := key.(crypto.Signer); ok {
		return s, nil
	}
	return nil, fmt.Errorf("a key of type %T cannot sign", key)
}

// Sizes of RSA keys, in bits. Verification with larger ones is too expensive.
const (
	minRSA = 2048
	maxRSA = 8192
)

// checkPublic checks that Envoy and other peers can verify signatures of a key.
func checkPublic(key crypto.PublicKey) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < minRSA || n > maxRSA {
			return fmt.Errorf("invalid RSA key of %[3]d bits: use %[1]d to %[2]d", minRSA, maxRSA, n)
		}
		return nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
			return nil
		}
		return fmt.Errorf("unsupported curve %s: use P-256, P-384 or P-521", k.Curve.Params().Name)
	case ed25519.PublicKey:
		return errors.New("Ed25519 key, which Envoy does not support: use ECDSA or RSA")
	}
	return fmt.Errorf("a key of type %T is neither ECDSA nor RSA", key)
}
