package image

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// Roots returns the root certificates that Mozilla trusts, as PEM. They come from a Go module, so that go.sum pins them and each
// machine builds the same image. Roots that are trusted for older certificates only are left out: a file cannot state that.
func Roots() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer does not fail
		}
	}
	return out.Bytes()
}
