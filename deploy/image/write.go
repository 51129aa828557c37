package image

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Write builds the image and writes it to a folder that exists: as an archive, whose path it returns, and as an OCI image
// layout in the folder oci, which it replaces. tag is the image's name with a tag.
func Write(o Options, tag, dir string) (archive string, err error) {
	ref, err := name.NewTag(tag)
	if err != nil {
		return "", fmt.Errorf("name of the image: %w", err)
	}
	img, err := Build(o)
	if err != nil {
		return "", err
	}
	archive = filepath.Join(dir, "moonsail-"+o.Architecture+".tar")
	if err := tarball.WriteToFile(archive, ref, img); err != nil {
		return "", err
	}
	return archive, writeLayout(filepath.Join(dir, "oci"), img, ref)
}

func writeLayout(dir string, img v1.Image, ref name.Tag) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": ref.String()}))
}
