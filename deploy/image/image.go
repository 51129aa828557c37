// Package image builds the container image of control planes, sidecars and gateways, without a container runtime or a
// registry. The image holds moonsail, its CNI plugin, Envoy, the libraries that Envoy is linked to, and root certificates. It has no
// shell and no package manager. Equal inputs make equal images.
package image

import (
	"cmp"
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// User is the user and group of the image's processes. The rules of interception exempt it.
const User = "1337:1337"

// bin is the folder of programs, and the image's PATH.
const bin = "usr/local/bin"

// Options of Build.
type Options struct {
	Moonsail, Envoy string // files of programs for Linux; Moonsail is statically linked
	Plugin          string // file of the CNI plugin, statically linked: it runs on nodes
	Roots           string // file with root certificates, PEM; empty: Roots()
	Libraries       string // folder that takes the place of / for the libraries of Envoy; empty: this machine's
	LibraryPackage  string // their package, for the list of contents; empty: not known
	Architecture    string // GOARCH of both programs
	EnvoyVersion    string
	Version         string // for the image's labels
	Revision        string // commit, for the image's labels; may be empty
	Created         time.Time
}

// machines are the architectures of programs in their files.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// check reports a program of another architecture than the image's.
func (o *Options) check() error {
	for _, program := range []string{o.Moonsail, o.Envoy} {
		f, err := elf.Open(program)
		if err != nil {
			return fmt.Errorf("%s: is not a program for Linux: %w", program, err)
		}
		machine := f.Machine
		_ = f.Close() // it was only read
		if want, known := machines[o.Architecture]; known && machine != want {
			return fmt.Errorf("%s: is a program for %s, and the image is for %s", program, machine, o.Architecture)
		}
	}
	return nil
}

// Build returns the image. Errors name the file.
func Build(o Options) (v1.Image, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	libraries, err := sysroot(cmp.Or(o.Libraries, "/")).libraries(o.Envoy)
	if err != nil {
		return nil, err
	}
	base, err := baseFiles(o.Roots)
	if err != nil {
		return nil, err
	}
	for name, from := range libraries {
		base = append(base, file{name: name, from: from, mode: 0o755})
	}
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	// What changes most often comes last, so that an upgrade of moonsail transfers one layer.
	for _, files := range [][]file{
		base,
		{{name: bin + "/envoy", from: o.Envoy, mode: 0o755}},
		{{name: bin + "/moonsail-cni", from: o.Plugin, mode: 0o755}},
		{{name: bin + "/moonsail", from: o.Moonsail, mode: 0o755}},
	} {
		l, err := layer(files)
		if err != nil {
			return nil, err
		}
		if img, err = mutate.Append(img, mutate.Addendum{Layer: l, MediaType: types.OCILayer}); err != nil {
			return nil, err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", o.Architecture, v1.Time{Time: o.Created}
	config.Config = v1.Config{
		User: User, Entrypoint: []string{"/" + bin + "/moonsail"}, Env: []string{"PATH=/" + bin}, WorkingDir: "/",
		Labels: labels(o),
	}
	return mutate.ConfigFile(img, config)
}

// labels are those of the OCI's image specification.
func labels(o Options) map[string]string {
	out := map[string]string{
		"org.opencontainers.image.title":       "moonsail",
		"org.opencontainers.image.description": "control plane, sidecar and gateway of the service mesh Moonsail",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     o.Version,
	}
	if o.Revision != "" {
		out["org.opencontainers.image.revision"] = o.Revision
	}
	return out
}

// baseFiles are the files that programs expect, and root certificates where Go and Envoy look for them.
func baseFiles(roots string) ([]file, error) {
	text := Roots()
	if roots != "" {
		var err error
		if text, err = os.ReadFile(filepath.Clean(roots)); err != nil {
			return nil, err
		}
	}
	return []file{
		{name: "etc/passwd", content: []byte("root:x:0:0:root:/:/none\nmoonsail:x:1337:1337:moonsail:/:/none\n"), mode: 0o644},
		{name: "etc/group", content: []byte("root:x:0:\nmoonsail:x:1337:\n"), mode: 0o644},
		{name: "etc/nsswitch.conf", content: []byte("hosts: files dns\n"), mode: 0o644},
		{name: "etc/ssl/certs/ca-certificates.crt", content: text, mode: 0o644},
		{name: "tmp/", mode: 0o1777},
	}, nil
}
