package image

import (
	"archive/tar"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/require"
)

// options uses two programs of this machine: one that is statically linked, and one with libraries.
func options(t *testing.T) Options {
	t.Helper()
	dynamic, err := exec.LookPath("cat")
	require.NoError(t, err)
	static := filepath.Join(t.TempDir(), "moonsail")
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Link(self, static))
	roots := filepath.Join(t.TempDir(), "roots.pem")
	require.NoError(t, os.WriteFile(roots, []byte("roots"), 0o600))
	return Options{Moonsail: static, Plugin: static, Envoy: dynamic, Roots: roots, Architecture: runtime.GOARCH, Version: "1.2.3", Revision: "abc", Created: time.Unix(1, 0).UTC()}
}

// contents returns the modes of an image's files and folders, by name.
func contents(t *testing.T, img v1.Image) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	r := mutate.Extract(img)
	defer r.Close()
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return out
		}
		require.NoError(t, err)
		require.Zero(t, h.Uid)
		out[h.Name] = h.Mode
	}
}

func TestImage(t *testing.T) {
	o := options(t)
	img, err := Build(o)
	require.NoError(t, err)
	config, err := img.ConfigFile()
	require.NoError(t, err)
	require.Equal(t, "linux/"+runtime.GOARCH, config.OS+"/"+config.Architecture)
	require.Equal(t, []string{"/usr/local/bin/moonsail"}, config.Config.Entrypoint)
	require.Equal(t, []string{"PATH=/usr/local/bin"}, config.Config.Env)
	require.Equal(t, "1337:1337", config.Config.User)
	require.Equal(t, "1.2.3", config.Config.Labels["org.opencontainers.image.version"])

	files := contents(t, img)
	require.Equal(t, int64(0o755), files["usr/local/bin/moonsail"])
	require.Equal(t, int64(0o755), files["usr/local/bin/moonsail-cni"])
	require.Equal(t, int64(0o755), files["usr/local/bin/envoy"])
	require.Equal(t, int64(0o644), files["etc/ssl/certs/ca-certificates.crt"])
	require.Equal(t, int64(0o1777), files["tmp"])
	for name := range files {
		require.NotRegexp(t, `/(sh|bash|busybox|apt|dpkg)$`, name, "an image without a shell")
	}

	again, err := Build(o)
	require.NoError(t, err)
	first, err := img.Digest()
	require.NoError(t, err)
	second, err := again.Digest()
	require.NoError(t, err)
	require.Equal(t, first, second, "equal inputs make equal images")
}

// TestProgramsRunInTheImage checks that the image has every library of a program: the program starts in a folder that
// holds nothing else.
func TestProgramsRunInTheImage(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("chroot needs root")
	}
	img, err := Build(options(t))
	require.NoError(t, err)
	root := t.TempDir()
	extract(t, img, root)
	cmd := exec.CommandContext(t.Context(), "chroot", root, "/usr/local/bin/envoy", "/etc/nsswitch.conf") // it is cat
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "hosts: files dns\n", string(out))
}

// TestWriteSeveralArchitectures checks the index, the archives and the list of contents. Equal inputs make equal files.
func TestWriteSeveralArchitectures(t *testing.T) {
	o := options(t)
	o.Moonsail, o.Plugin = o.Envoy, o.Envoy // small files
	other := o
	other.Architecture = "other"
	sums := func() map[string]string {
		dir := t.TempDir()
		archives, err := Write([]Options{o, other}, "moonsail:1.2.3", dir)
		require.NoError(t, err)
		out := map[string]string{}
		for _, a := range append(archives, filepath.Join(dir, "contents.json"), filepath.Join(dir, "oci", "index.json")) {
			text, err := os.ReadFile(a)
			require.NoError(t, err)
			sum := sha256.Sum256(text)
			out[filepath.Base(a)] = hex.EncodeToString(sum[:])
		}
		root, err := layout.ImageIndexFromPath(filepath.Join(dir, "oci"))
		require.NoError(t, err)
		manifest, err := root.IndexManifest()
		require.NoError(t, err)
		require.Len(t, manifest.Manifests, 1)
		require.Equal(t, "1.2.3", manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"])
		index, err := root.ImageIndex(manifest.Manifests[0].Digest)
		require.NoError(t, err)
		manifest, err = index.IndexManifest()
		require.NoError(t, err)
		require.Len(t, manifest.Manifests, 2)
		require.Equal(t, "linux/"+runtime.GOARCH, manifest.Manifests[0].Platform.String())
		require.Equal(t, "linux/other", manifest.Manifests[1].Platform.String())

		var contents []Contents
		text, err := os.ReadFile(filepath.Join(dir, "contents.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &contents))
		require.Equal(t, manifest.Manifests[0].Digest.String(), contents[0].Digest)
		require.Contains(t, contents[0].Files, "usr/local/bin/envoy")
		require.Contains(t, contents[0].Files, "etc/passwd")
		return out
	}
	first := sums()
	require.Len(t, first, 5)
	require.Contains(t, first, "moonsail.oci.tar")
	require.Equal(t, first, sums())
}

// TestSysroot checks that libraries come from the folder that takes the place of /, also through absolute links.
func TestSysroot(t *testing.T) {
	machine, err := sysroot("/").libraries(options(t).Envoy)
	require.NoError(t, err)
	require.NotEmpty(t, machine)
	root := t.TempDir()
	for name, from := range machine {
		content, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755))
		require.NoError(t, os.MkdirAll(filepath.Join(root, "real"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, "real", filepath.Base(name)), content, 0o600))
		require.NoError(t, os.Symlink("/real/"+filepath.Base(name), filepath.Join(root, name)))
	}
	found, err := sysroot(root).libraries(options(t).Envoy)
	require.NoError(t, err)
	require.Len(t, found, len(machine))
	for name, from := range found {
		require.Contains(t, machine, name)
		require.Equal(t, filepath.Join(root, "real", filepath.Base(name)), from)
	}
	_, err = sysroot(t.TempDir()).libraries(options(t).Envoy)
	require.ErrorContains(t, err, "was not found below ")
}

func extract(t *testing.T, img v1.Image, root string) {
	t.Helper()
	r := mutate.Extract(img)
	defer r.Close()
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return
		}
		require.NoError(t, err)
		path := filepath.Join(root, h.Name)
		if h.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, 0o755))
			continue
		}
		content, err := io.ReadAll(archive)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, content, os.FileMode(h.Mode))) //nolint:gosec // a program
	}
}

// TestRefusesAnotherArchitecture checks that programs are for the image's architecture.
func TestRefusesAnotherArchitecture(t *testing.T) {
	o := options(t)
	o.Architecture = map[string]string{"amd64": "arm64"}[runtime.GOARCH]
	if o.Architecture == "" {
		o.Architecture = "amd64"
	}
	_, err := Build(o)
	require.ErrorContains(t, err, o.Moonsail+": is a program for ")
}

func TestErrorsNameTheFile(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"no Envoy":        func(o *Options) { o.Envoy = "/nonexistent/envoy" },
		"Envoy of text":   func(o *Options) { o.Envoy = o.Roots },
		"no moonsail":     func(o *Options) { o.Moonsail = "/nonexistent/moonsail" },
		"no certificates": func(o *Options) { o.Roots = "/nonexistent/roots.pem" },
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			change(&o)
			_, err := Build(o)
			require.Error(t, err)
			require.Contains(t, err.Error(), map[bool]string{true: "/nonexistent/", false: o.Roots}[name != "Envoy of text"])
		})
	}
}

// TestRoots checks that the built-in root certificates are complete, valid, and the same each time.
func TestRoots(t *testing.T) {
	text := Roots()
	require.Equal(t, text, Roots())
	count := 0
	for rest := text; ; count++ {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			require.Empty(t, rest)
			break
		}
		c, err := x509.ParseCertificate(b.Bytes)
		require.NoError(t, err)
		require.True(t, c.IsCA, c.Subject)
	}
	require.Greater(t, count, 100)
}
