package ca

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
)

// Names of files, which are Istio's: those of the Secrets cacerts and istio-ca-secret.
const (
	CertFile  = "ca-cert.pem"    // the signing certificate
	KeyFile   = "ca-key.pem"     // its private key
	ChainFile = "cert-chain.pem" // intermediates, from the signing certificate on to the root's
	RootFile  = "root-cert.pem"  // what workloads trust: one root, or several while they change
	// OwnFile marks files that were made here, and that may be made anew.
	OwnFile = "istio-generated"
)

// FileNames are all that a Store has to keep.
var FileNames = []string{CertFile, KeyFile, ChainFile, RootFile, OwnFile}

// Files are contents by name.
type Files map[string][]byte

// Contents are what a Store has.
type Contents struct {
	Files Files
	Where string // for people: "Secret istio-system/cacerts"
	// Own: they were made here, so that the root may be renewed here.
	Own bool
	// Version is the Store's.
	Version string
}

// Store keeps what an authority is made of. Of several control planes with one Store, one
// creates or replaces what is there, and all use that.
type Store interface {
	// Place is where it keeps things, for people.
	Place() string
	// Read gives what there is; nil: nothing.
	Read(ctx context.Context) (*Contents, error)
	// Create puts files where there are none. Where somebody else was first it does nothing.
	Create(ctx context.Context, f Files) error
	// Replace puts files in the place of what was read. Where that has changed meanwhile it
	// does nothing.
	Replace(ctx context.Context, old *Contents, f Files) error
}

// fingerprint tells contents apart.
func (f Files) fingerprint() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(f)) {
		sum := sha256.Sum256(f[name])
		h.Write([]byte(name + "\x00"))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}
