package ca

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/moonsail/moonsail/internal/base/atomicfile"
)

// Dir is a Store in a directory with a file for each of FileNames. Only the owner may read the files that it writes.
type Dir struct {
	Path string
	// ReadOnly: the files are mounted by an operator, and never written.
	ReadOnly bool
}

// Place implements Store.
func (d Dir) Place() string { return "directory " + d.Path }

// Read implements Store. A directory that does not exist is empty. Incomplete files of an operator are not empty: the
// operator must complete them.
func (d Dir) Read(context.Context) (*Contents, error) {
	f, err := d.files()
	if err != nil {
		return nil, err
	}
	_, own := f[OwnFile]
	switch {
	case len(f) == 0 && d.ReadOnly:
		return nil, fmt.Errorf("no %s and %s in the directory", CertFile, KeyFile)
	case len(f) == 0, own && len(f[KeyFile]) == 0: // the key of generated files is written last
		return nil, nil
	}
	return &Contents{Files: f, Where: d.Place(), Own: own && !d.ReadOnly, Version: f.fingerprint()}, nil
}

// writeOrder is the order in which generated files are written: the mark first, the key last. Lists of revoked
// certificates are the operator's, and only read.
var writeOrder = []string{OwnFile, RevokedFile, RootFile, ChainFile, CertFile, KeyFile}

// files reads the files in reverse order of writing: with each file, all that were written before it exist.
func (d Dir) files() (Files, error) {
	f := Files{}
	for _, name := range slices.Backward(writeOrder) {
		b, err := os.ReadFile(filepath.Join(d.Path, name))
		switch {
		case err == nil:
			f[name] = b
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return f, nil
}

// Create implements Store.
func (d Dir) Create(ctx context.Context, f Files) error { return d.change(ctx, "", f) }

// Replace implements Store.
func (d Dir) Replace(ctx context.Context, old *Contents, f Files) error {
	return d.change(ctx, old.Version, f)
}

// change writes files if the directory still has the version; "": it is empty. A lock excludes other processes.
func (d Dir) change(ctx context.Context, version string, f Files) error {
	if d.ReadOnly {
		return errors.New("the directory is read-only")
	}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Join(d.Path, ".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	switch c, err := d.Read(ctx); {
	case err != nil:
		return err
	case c == nil && version != "", c != nil && c.Version != version:
		return nil // another process was first
	}
	return d.write(f)
}

// write writes files. A concurrent reader finds no files, or files that match.
func (d Dir) write(f Files) error {
	for _, name := range writeOrder {
		if b, ok := f[name]; ok {
			if err := atomicfile.Write(filepath.Join(d.Path, name), b); err != nil {
				return err
			}
		}
	}
	return nil
}
