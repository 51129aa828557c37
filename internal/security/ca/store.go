package ca

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/moonsail/moonsail/internal/security/revocation"
)

// Names of files, as in Istio's Secrets cacerts and istio-ca-secret.
const (
	CertFile  = "ca-cert.pem"    // the signing certificate
	KeyFile   = "ca-key.pem"     // its private key
	ChainFile = "cert-chain.pem" // intermediates, from the signing certificate to the root
	RootFile  = "root-cert.pem"  // roots for workloads: one, or several during a rotation
	// RevokedFile holds lists of revoked certificates (CRL). It is optional.
	RevokedFile = revocation.FileName
	// OwnFile marks generated files, which may be replaced.
	OwnFile = "istio-generated"
)

// FileNames are all files of a Store.
var FileNames = []string{CertFile, KeyFile, ChainFile, RootFile, RevokedFile, OwnFile}

// Files are contents by name.
type Files map[string][]byte

// Contents are the contents of a Store.
type Contents struct {
	Files Files
	Where string // for messages: "Secret istio-system/cacerts"
	// Own: the files were generated, so that the root may be renewed.
	Own bool
	// Version identifies the contents in the Store.
	Version string
}

// Store keeps the files of an authority. Of several control planes with one Store, one creates or replaces the files,
// and all use them.
type Store interface {
	// Place names the Store in messages.
	Place() string
	// Read returns the contents; nil: the Store is empty.
	Read(ctx context.Context) (*Contents, error)
	// Create writes files into an empty Store. It does nothing if another writer was first.
	Create(ctx context.Context, f Files) error
	// Replace replaces the contents that were read. It does nothing if they have changed.
	Replace(ctx context.Context, old *Contents, f Files) error
}

// fingerprint distinguishes contents.
func (f Files) fingerprint() string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(f)) {
		sum := sha256.Sum256(f[name])
		h.Write([]byte(name + "\x00"))
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}
