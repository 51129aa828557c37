package revocation_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/security/revocation"
)

// party is a certificate with its key.
type party struct {
	*x509.Certificate
	key crypto.Signer
}

var serial int64

// issue makes a certificate; by nil: a root.
func issue(t *testing.T, name string, by *party) *party {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	p := &party{key: key}
	if by == nil {
		by = &party{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.Certificate, key.Public(), by.key)
	require.NoError(t, err)
	p.Certificate, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	return p
}

// list is p's list of revoked certificates.
func (p *party) list(t *testing.T, next time.Time, revoked ...*party) string {
	t.Helper()
	l := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: next}
	for _, c := range revoked {
		l.RevokedCertificateEntries = append(l.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, l, p.Certificate, p.key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}))
}

func parse(t *testing.T, text string) *revocation.Lists {
	t.Helper()
	if text == "" {
		return nil
	}
	l, err := revocation.Parse([]byte(text))
	require.NoError(t, err)
	return l
}

func TestCheck(t *testing.T) {
	root := issue(t, "root", nil)
	between := issue(t, "between", root)
	leaf := issue(t, "leaf", between)
	impostor := issue(t, "root", nil)
	chain := []*x509.Certificate{leaf.Certificate, between.Certificate, root.Certificate}
	later := time.Now().Add(time.Hour)
	for _, test := range []struct{ name, lists, err string }{
		{name: "none"},
		{name: "empty lists", lists: root.list(t, later) + between.list(t, later)},
		{name: "the leaf", lists: root.list(t, later) + between.list(t, later, leaf), err: `of "CN=between" was revoked at`},
		{name: "the intermediate", lists: root.list(t, later, between), err: `of "CN=root" was revoked at`},
		{name: "a serial number of another issuer", lists: root.list(t, later, leaf)},
		{name: "a list that another key signed", lists: impostor.list(t, later, between)},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := parse(t, test.lists)
			err := l.Check([][]*x509.Certificate{chain})
			if test.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.err)
			other := []*x509.Certificate{leaf.Certificate, impostor.Certificate}
			require.NoError(t, l.Check([][]*x509.Certificate{chain, other}), "another chain is valid")
		})
	}
}

func TestCovers(t *testing.T) {
	root := issue(t, "root", nil)
	between, impostor := issue(t, "between", root), issue(t, "between", nil)
	issuers := []*x509.Certificate{between.Certificate, root.Certificate}
	later, ago := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	for _, test := range []struct{ name, lists, err string }{
		{name: "no lists"},
		{name: "a list for each issuer", lists: between.list(t, later) + root.list(t, later)},
		{name: "one is missing", lists: root.list(t, later), err: `"CN=between": it has no list`},
		{name: "one has expired", lists: between.list(t, later) + root.list(t, ago), err: `"CN=root": its list expired at`},
		{name: "an older one has expired", lists: between.list(t, later) + root.list(t, ago) + root.list(t, later)},
		{name: "one has another signature", lists: impostor.list(t, later) + root.list(t, later), err: `"CN=between": its list has an invalid signature`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := parse(t, test.lists).Covers(issuers, time.Now())
			if test.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.err)
		})
	}
}

func TestParse(t *testing.T) {
	root := issue(t, "root", nil)
	valid := root.list(t, time.Now().Add(time.Hour))
	for _, test := range []struct{ name, text, err string }{
		{"a certificate", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})), "not a list of revoked certificates in PEM"},
		{"an empty file", "\n", "empty: remove it if nothing is revoked"},
		{"no PEM", "nothing", "not a list of revoked certificates in PEM"},
		{"text behind a list", valid + "more", "not a list of revoked certificates in PEM"},
		{"broken second list", valid + string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte("x")})), "list 2: x509"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := revocation.Parse([]byte(test.text))
			require.ErrorContains(t, err, test.err)
		})
	}
	none, err := revocation.Parse(nil)
	require.NoError(t, err)
	require.Nil(t, none)
	require.Empty(t, none.PEM())
	require.Zero(t, none.Expiry())
	require.Equal(t, valid, parse(t, valid).PEM())
	require.WithinDuration(t, time.Now().Add(time.Hour), parse(t, valid).Expiry(), time.Minute)
}
