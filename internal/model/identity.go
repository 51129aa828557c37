package model

import (
	"fmt"
	"strings"
)

// DefaultTrustDomain is the trust domain where the mesh's configuration names none.
const DefaultTrustDomain = "cluster.local"

// Identity is who a workload is: its service account. It is what is in its certificate, as
// a SPIFFE id.
type Identity struct {
	TrustDomain    string
	Namespace      string
	ServiceAccount string
}

// spiffeScheme begins a SPIFFE id.
const spiffeScheme = "spiffe://"

// String is the SPIFFE id: "spiffe://cluster.local/ns/shop/sa/web".
func (i Identity) String() string {
	return spiffeScheme + i.TrustDomain + "/ns/" + i.Namespace + "/sa/" + i.ServiceAccount
}

// ParseIdentity reads a SPIFFE id of the form that String writes.
func ParseIdentity(id string) (Identity, error) {
	rest, ok := strings.CutPrefix(id, spiffeScheme)
	if !ok {
		return Identity{}, fmt.Errorf("%q is not a SPIFFE id: it does not begin with %s", id, spiffeScheme)
	}
	p := strings.Split(rest, "/")
	if len(p) != 5 || p[1] != "ns" || p[3] != "sa" {
		return Identity{}, fmt.Errorf("%q is not of the form spiffe://<trust domain>/ns/<namespace>/sa/<service account>", id)
	}
	i := Identity{TrustDomain: p[0], Namespace: p[2], ServiceAccount: p[4]}
	return i, i.Check()
}

// Check tells what keeps it from being an identity.
func (i Identity) Check() error {
	for _, part := range []struct{ what, value string }{
		{"trust domain", i.TrustDomain}, {"namespace", i.Namespace}, {"service account", i.ServiceAccount},
	} {
		if part.value == "" {
			return fmt.Errorf("the %s is missing", part.what)
		}
		if len(part.value) > maxIdentityPart || strings.ContainsFunc(part.value, notOfIdentity) {
			return fmt.Errorf("%q is no %s: it has at most %d letters, digits, '-', '.' and '_'", part.value, part.what, maxIdentityPart)
		}
	}
	return nil
}

// What parts of an identity are made of: DNS names, and a little more as SPIFFE has it.
const (
	identityLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
	maxIdentityPart = 255
)

func notOfIdentity(r rune) bool { return !strings.ContainsRune(identityLetters, r) }
