// Package revocation checks certificates against lists of revoked certificates (CRL, RFC 5280).
package revocation

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// FileName is the name of a file, or of a key of a Secret or ConfigMap, with lists in PEM. It need not exist.
const FileName = "ca-crl.pem"

// Trust verifies peers.
type Trust struct {
	Roots   string // in PEM
	Revoked string // lists of revoked certificates in PEM; empty: none
	// Unread: the authority could not read the lists since its start, so that it does not know them. Others keep theirs.
	Unread bool
}

// Lists are the lists of one or more issuers. They are immutable. nil: nothing is revoked.
type Lists struct {
	lists []*x509.RevocationList
	text  string
}

// Parse decodes lists in PEM. nil has none, and the result is nil. An empty text is an error: it may be a file that is being
// written.
func Parse(text []byte) (*Lists, error) {
	if text == nil {
		return nil, nil
	}
	out := &Lists{}
	for rest := bytes.TrimSpace(text); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "X509 CRL" {
			return nil, errors.New("not a list of revoked certificates in PEM (X509 CRL)")
		}
		l, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("list %d: %w", len(out.lists)+1, err)
		}
		out.lists = append(out.lists, l)
		out.text += string(pem.EncodeToMemory(block))
	}
	if len(out.lists) == 0 {
		return nil, errors.New("empty: remove it if nothing is revoked")
	}
	return out, nil
}

// PEM returns all lists.
func (l *Lists) PEM() string {
	if l == nil {
		return ""
	}
	return l.text
}

// Covers reports whether peers can check a chain, which ends with its root: each issuer must have a list that is valid
// now. Envoy refuses a chain otherwise.
func (l *Lists) Covers(chain []*x509.Certificate, now time.Time) error {
	if l == nil {
		return nil
	}
	for _, issuer := range chain {
		if err := l.coversIssuer(issuer, now); err != nil {
			return fmt.Errorf("%q: %w", issuer.Subject, err)
		}
	}
	return nil
}

func (l *Lists) coversIssuer(issuer *x509.Certificate, now time.Time) error {
	err := errors.New("it has no list, so that Envoy would refuse every certificate that it signed: add one, which may be empty")
	for _, list := range l.of(issuer) {
		switch {
		case list.CheckSignatureFrom(issuer) != nil:
			err = errors.New("its list has an invalid signature")
		case !list.NextUpdate.IsZero() && now.After(list.NextUpdate):
			err = fmt.Errorf("its list expired at %s, and Envoy would refuse every certificate that it signed: replace it", list.NextUpdate.Format(time.RFC3339))
		default:
			return nil
		}
	}
	return err
}

// of returns the lists with an issuer's name.
func (l *Lists) of(issuer *x509.Certificate) []*x509.RevocationList {
	var out []*x509.RevocationList
	for _, list := range l.lists {
		if bytes.Equal(list.RawIssuer, issuer.RawSubject) {
			out = append(out, list)
		}
	}
	return out
}

// Expiry returns when the first list expires; zero: none does.
func (l *Lists) Expiry() time.Time {
	first := time.Time{}
	if l == nil {
		return first
	}
	for _, list := range l.lists {
		if at := list.NextUpdate; !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// Len returns the number of revoked certificates.
func (l *Lists) Len() int {
	n := 0
	if l != nil {
		for _, list := range l.lists {
			n += len(list.RevokedCertificateEntries)
		}
	}
	return n
}

// Check returns an error if each of the chains, which were verified and end with a root, has a revoked certificate.
func (l *Lists) Check(chains [][]*x509.Certificate) (err error) {
	if l == nil {
		return nil
	}
	for _, chain := range chains {
		if err = l.check(chain); err == nil {
			return nil
		}
	}
	return err
}

func (l *Lists) check(chain []*x509.Certificate) error {
	for i := range len(chain) - 1 {
		c, issuer := chain[i], chain[i+1]
		for _, list := range l.of(issuer) {
			for _, entry := range list.RevokedCertificateEntries {
				if entry.SerialNumber.Cmp(c.SerialNumber) == 0 && list.CheckSignatureFrom(issuer) == nil {
					return fmt.Errorf("x509: certificate %x of %q was revoked at %s", c.SerialNumber, issuer.Subject, entry.RevocationTime.Format(time.RFC3339))
				}
			}
		}
	}
	return nil
}
