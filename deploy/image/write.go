package image

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Write builds the images of some architectures, and writes to a folder that exists:
//
//   - moonsail-ARCH.tar for each, an archive for `docker load` and `ctr images import`
//   - oci, an OCI image layout with one image index, which it replaces
//   - moonsail.oci.tar, an archive of this layout, if there are several
//   - contents.json, the list of Contents
//
// tag is the image's name with a tag. Write returns the archives.
func Write(options []Options, tag, dir string) (archives []string, err error) {
	ref, err := name.NewTag(tag)
	if err != nil {
		return nil, fmt.Errorf("name of the image: %w", err)
	}
	if err := removeArchives(dir); err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var all []Contents
	for i := range options {
		o := &options[i]
		img, err := Build(*o)
		if err != nil {
			return nil, err
		}
		contents, err := contentsOf(o, img)
		if err != nil {
			return nil, err
		}
		all = append(all, *contents)
		archive := filepath.Join(dir, "moonsail-"+o.Architecture+".tar")
		if err := tarball.WriteToFile(archive, ref, img); err != nil {
			return nil, err
		}
		archives = append(archives, archive)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			MediaType: types.OCIManifestSchema1, Platform: &v1.Platform{OS: "linux", Architecture: o.Architecture},
		}})
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "contents.json"), append(text, '\n'), 0o644); err != nil { //nolint:gosec // for everyone
		return nil, err
	}
	oci := filepath.Join(dir, "oci")
	if err := writeLayout(oci, index, ref); err != nil {
		return nil, err
	}
	together := filepath.Join(dir, "moonsail.oci.tar")
	if len(options) < 2 {
		return archives, nil
	}
	return append(archives, together), archiveFolder(together, oci)
}

// removeArchives removes the archives of an earlier build, which may have been for other architectures.
func removeArchives(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, "moonsail*.tar"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

// writeLayout writes a layout whose only entry is the index, under the image's name.
func writeLayout(dir string, index v1.ImageIndex, ref name.Tag) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": ref.TagStr(), "io.containerd.image.name": ref.String(),
	}))
}

// archiveFolder writes the files of a folder to an archive. Names are sorted and times are zero, so that equal files make
// equal archives.
func archiveFolder(archive, dir string) (err error) {
	out, err := os.Create(archive) //nolint:gosec // the caller chooses it
	if err != nil {
		return err
	}
	defer func() {
		if closed := out.Close(); err == nil {
			err = closed
		}
	}()
	w := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		relative, relErr := filepath.Rel(dir, path)
		if err != nil || relErr != nil || relative == "." {
			return err
		}
		if d.IsDir() {
			return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: relative + "/", Mode: 0o755})
		}
		return addFile(w, path, relative)
	})
	if err != nil {
		return err
	}
	return w.Close()
}

func addFile(w *tar.Writer, path, name string) error {
	f, err := os.Open(path) //nolint:gosec // the caller chooses it
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it is only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
