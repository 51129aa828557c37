package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Contents lists what an image holds, for a bill of materials.
type Contents struct {
	Architecture string `json:"architecture"`
	Digest       string `json:"digest"` // of the image's manifest
	Envoy        string `json:"envoy"`  // version
	// LibraryPackage is the package of the libraries as NAME_VERSION_ARCHITECTURE; empty: files of the machine that built the image.
	LibraryPackage string            `json:"libraryPackage,omitempty"`
	Files          map[string]string `json:"files"` // SHA-256 of each regular file, by its name
}

func contentsOf(o *Options, img v1.Image) (*Contents, error) {
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	out := &Contents{Architecture: o.Architecture, Digest: digest.String(), Envoy: o.EnvoyVersion, LibraryPackage: o.LibraryPackage, Files: map[string]string{}}
	r := mutate.Extract(img)
	defer func() { _ = r.Close() }() // it was only read
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, archive); err != nil { //nolint:gosec // the image is ours
			return nil, err
		}
		out.Files[h.Name] = hex.EncodeToString(sum.Sum(nil))
	}
}
