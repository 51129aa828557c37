// Package certfile is what the control plane and the sidecars' agents agree on about certificates that
// are in files of a proxy: how Envoy asks its agent for them, under Istio's names. It also checks certificates of any source for
// what Envoy does not accept. It is pure.
package certfile

import (
	"slices"
	"strings"
)

// The names: "file-cert:CERTIFICATE~KEY" and "file-root:CAS", or, which Istio does not have,
// "file-root:CAS~REVOKED" with lists of revoked certificates.
const (
	pairPrefix = "file-cert:"
	rootPrefix = "file-root:"
	separator  = "~"
)

// System stands for the certificates that the proxy's system trusts, in place of a file of CAs.
const System = "system"

// Secret is what one name stands for: a certificate with its key, or CAs. Paths are the proxy's, as its configuration
// has them.
type Secret struct {
	Certificate, Key string
	CAs              string // a path, or System; empty: it is a certificate
	Revoked          string // beside CAs; empty: no list
}

// Pair is the name of a certificate with its key. It is not ok if their paths cannot be separated in it.
func Pair(certificate, key string) (name string, ok bool) {
	return pairPrefix + certificate + separator + key, plain(certificate, key)
}

// Roots is the name of CAs; ok as in Pair. revoked may be empty.
func Roots(cas, revoked string) (name string, ok bool) {
	name = rootPrefix + cas
	if revoked != "" {
		name += separator + revoked
	}
	return name, plain(cas, revoked)
}

func plain(paths ...string) bool {
	return !slices.ContainsFunc(paths, func(p string) bool { return strings.Contains(p, separator) })
}

// Parse takes a name apart; not ok: it is not one of these.
func Parse(name string) (s Secret, ok bool) {
	if text, is := strings.CutPrefix(name, pairPrefix); is {
		s.Certificate, s.Key, ok = strings.Cut(text, separator)
		return s, ok && s.Certificate != "" && s.Key != "" && plain(s.Key)
	}
	text, is := strings.CutPrefix(name, rootPrefix)
	if !is {
		return Secret{}, false
	}
	s.CAs, s.Revoked, ok = strings.Cut(text, separator)
	return s, s.CAs != "" && ok == (s.Revoked != "") && plain(s.Revoked)
}
