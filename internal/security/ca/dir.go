package ca

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Dir is a Store in a directory, with a file for each of FileNames. What is made there is
// readable by its owner alone.
type Dir struct {
	Path string
	// ReadOnly: nothing is made there. Files that an operator has mounted are used.
	ReadOnly bool
}

// Place implements Store.
func (d Dir) Place() string { return "directory " + d.Path }

// Read implements Store. A directory that does not exist is empty. What an operator has begun
// to put there is not nothing: it is for them to complete.
func (d Dir) Read(context.Context) (*Contents, error) {
	f, err := d.files()
	if err != nil {
		return nil, err
	}
	_, own := f[OwnFile]
	switch {
	case len(f) == 0 && d.ReadOnly:
		return nil, fmt.Errorf("there are no %s and %s in it", CertFile, KeyFile)
	case len(f) == 0, own && len(f[KeyFile]) == 0: // of files that are made here the key comes last
		return nil, nil
	}
	return &Contents{Files: f, Where: d.Place(), Own: own && !d.ReadOnly, Version: f.fingerprint()}, nil
}

// writeOrder is that in which files are made: first the sign that they are, the key last.
var writeOrder = []string{OwnFile, RootFile, ChainFile, CertFile, KeyFile}

// files reads what there is, in the opposite of the order in which it is made: with each file
// there are those that were made before it.
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

// change writes files where there still is what version stands for; "": nothing. Other
// processes wait meanwhile.
func (d Dir) change(ctx context.Context, version string, f Files) error {
	if d.ReadOnly {
		return errors.New("nothing is written there")
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
		return nil // somebody else was first
	}
	return d.write(f)
}

// write writes files: who reads meanwhile finds nothing, or what fits together.
func (d Dir) write(f Files) error {
	for _, name := range writeOrder {
		if b, ok := f[name]; ok {
			if err := replaceFile(filepath.Join(d.Path, name), b); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaceFile writes a file as a whole, or not at all.
func replaceFile(path string, b []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // it is gone when all went well
	_, err = tmp.Write(b)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
