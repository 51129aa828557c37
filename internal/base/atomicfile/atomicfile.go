// Package atomicfile replaces files in one step.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces a file. Readers see the old content or the new one. The new file has mode 0600.
func Write(path string, content []byte) error { return WriteMode(path, content, 0o600) }

// WriteMode is Write for a file with another mode.
func WriteMode(path string, content []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error is of the write
	}
	return err
}
