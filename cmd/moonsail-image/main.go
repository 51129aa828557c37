// The program moonsail-image writes the container image of Moonsail as an archive, which `docker load`,
// `podman load`, `ctr images import` and `kind load image-archive` read, and as an OCI image layout.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/moonsail/moonsail/deploy/image"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/version"
)

func main() {
	tag := flag.String("name", "moonsail:latest", "`NAME` of the image, with its tag")
	out := flag.String("out", "dist/image", "`DIR` for the archive and the layout")
	program := flag.String("moonsail", "dist/image/moonsail", "`FILE` of moonsail, built with CGO_ENABLED=0")
	flag.Parse()
	if err := run(*tag, *out, *program); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(tag, out, program string) error {
	ref, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("--name: %w", err)
	}
	o, err := options(program)
	if err != nil {
		return err
	}
	img, err := image.Build(o)
	if err != nil {
		return err
	}
	archive := filepath.Join(out, "moonsail-"+o.Architecture+".tar")
	if err := tarball.WriteToFile(archive, ref, img); err != nil {
		return err
	}
	if err := writeLayout(filepath.Join(out, "oci"), img, ref); err != nil {
		return err
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s %s\n%s: docker load -i, podman load -i, ctr images import, kind load image-archive\n", ref, digest, archive)
	return nil
}

func options(program string) (image.Options, error) {
	binary, err := envoy.Find("")
	if err != nil {
		return image.Options{}, err
	}
	roots, err := image.FindRoots()
	if err != nil {
		return image.Options{}, err
	}
	build, err := version.Of(program)
	if err != nil {
		return image.Options{}, fmt.Errorf("%s: not a Go program: %w", program, err)
	}
	created, err := time.Parse(time.RFC3339, build.Time)
	if err != nil { // built outside of a repository
		created = time.Unix(0, 0)
	}
	return image.Options{
		Moonsail: program, Envoy: binary.Path, Roots: roots, Architecture: runtime.GOARCH,
		Version: build.Version, Revision: build.Commit, Created: created.UTC(),
	}, nil
}

// writeLayout replaces the OCI image layout in a folder.
func writeLayout(dir string, img v1.Image, ref name.Tag) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendImage(img, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": ref.Name()}))
}
