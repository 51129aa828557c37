package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// file is one file of a layer. A name that ends in "/" is a folder.
type file struct {
	name    string // in the image, relative to its root
	from    string // file on this machine; empty: content
	content []byte
	mode    int64 // permissions, with the sticky bit at 0o1000
}

// layer makes a layer of files and the folders above them. Owners are root, times are zero, and names are sorted, so
// that equal files make equal layers.
func layer(files []file) (v1.Layer, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range withFolders(files) {
		if err := f.write(w); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	})
}

// withFolders adds the folders above the files, and sorts all by name. A folder comes before its files.
func withFolders(files []file) []file {
	known := map[string]bool{}
	out := make([]file, 0, 2*len(files))
	for _, f := range files {
		f.name = strings.TrimPrefix(f.name, "/")
		known[f.name] = true
		out = append(out, f)
	}
	for _, f := range slices.Clone(out) {
		for dir := path.Dir(strings.TrimSuffix(f.name, "/")); dir != "."; dir = path.Dir(dir) {
			if !known[dir+"/"] {
				known[dir+"/"] = true
				out = append(out, file{name: dir + "/", mode: 0o755})
			}
		}
	}
	slices.SortFunc(out, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	return out
}

func (f file) write(w *tar.Writer) error {
	if strings.HasSuffix(f.name, "/") {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: f.name, Mode: f.mode})
	}
	content := f.content
	if f.from != "" {
		var err error
		if content, err = os.ReadFile(f.from); err != nil {
			return err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
