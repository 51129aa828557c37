package meshfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Directory is a place whose files are replaced by renaming, so that the control plane never reads an incomplete file.
type Directory struct {
	dir, staging string // files are written to staging first
}

// NewDirectory creates dir, which must be empty or absent, and staging, which must be on the same file system.
func NewDirectory(dir, staging string) (*Directory, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if list, err := os.ReadDir(dir); err != nil {
		return nil, err
	} else if len(list) > 0 {
		return nil, fmt.Errorf("%s: not empty: the lab needs an empty directory for its mesh", dir)
	}
	return &Directory{dir, staging}, os.MkdirAll(staging, 0o700)
}

// String is the directory's path.
func (d *Directory) String() string { return d.dir }

// Stage implements Place. The commit is one rename.
func (d *Directory) Stage(name, content string) (commit func() error, err error) {
	from, to := filepath.Join(d.staging, name), filepath.Join(d.dir, name)
	if err := os.WriteFile(from, []byte(content), 0o600); err != nil {
		return nil, err
	}
	return func() error { return os.Rename(from, to) }, nil
}

// Remove implements Place.
func (d *Directory) Remove(name string) (commit func() error, err error) {
	return func() error { return os.Remove(filepath.Join(d.dir, name)) }, nil
}

// Clear implements Place. The directory stays, empty.
func (d *Directory) Clear() error {
	files, err := os.ReadDir(d.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		err = errors.Join(err, os.Remove(filepath.Join(d.dir, f.Name())))
	}
	return errors.Join(err, os.RemoveAll(d.staging))
}
