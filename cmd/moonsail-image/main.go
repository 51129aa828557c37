// The program moonsail-image writes the container image of Moonsail as an archive, which `docker load`,
// `podman load`, `ctr images import` and `kind load image-archive` read, and as an OCI image layout.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

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
	o, err := options(program)
	if err != nil {
		return err
	}
	archive, err := image.Write(o, tag, out)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "%s: docker load -i, podman load -i, ctr images import, kind load image-archive\n", archive)
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
