package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// attempts bounds how often a change starts again because another program writes the same file.
const attempts = 20

// edit replaces a file's content by what change makes of it, at once. Other programs may write the file at the same time:
// their content is never lost. It reports whether the file changed.
func edit(file string, change func([]byte) ([]byte, error)) (changed bool, err error) {
	for range attempts {
		old, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			return false, err
		}
		text, err := change(old)
		if err != nil {
			return false, fmt.Errorf("%s: %w", file, err)
		}
		if bytes.Equal(old, text) {
			return false, nil
		}
		mode := fs.FileMode(0o600)
		if info, err := os.Stat(file); err == nil {
			mode = info.Mode().Perm()
		}
		temporary, err := writeBeside(file, text, mode)
		if err != nil {
			return false, err
		}
		done, err := swap(temporary, file, old, text)
		_ = os.Remove(temporary)
		if done || err != nil {
			return done, err
		}
	}
	return false, fmt.Errorf("%s: another program keeps writing it: stop that program", file)
}

// swap exchanges two files. The exchanged content must be the one that was read; otherwise another program has written
// meanwhile, and its newest content is put back.
func swap(temporary, file string, old, text []byte) (done bool, err error) {
	for expected, placed := old, text; ; {
		if err := exchange(temporary, file); err != nil {
			return false, err
		}
		found, err := os.ReadFile(filepath.Clean(temporary))
		if err != nil {
			return false, err
		}
		if bytes.Equal(found, expected) {
			return bytes.Equal(placed, text), nil
		}
		expected, placed = placed, found
	}
}

// temporaryFiles matches the names of temporary files.
const temporaryFiles = ".moonsail-cni-*"

// writeBeside writes a new file in the folder of another one, and returns its name. Container runtimes ignore the name.
func writeBeside(file string, text []byte, mode fs.FileMode) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(file), temporaryFiles)
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// place writes a file at once, whether it exists or not.
func place(file string, text []byte, mode fs.FileMode) error {
	temporary, err := writeBeside(file, text, mode)
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, file); err != nil {
		_ = os.Remove(temporary)
		return err
	}
	return nil
}

// placeNew writes a file at once. The error is fs.ErrExist if it exists.
func placeNew(file string, text []byte, mode fs.FileMode) error {
	temporary, err := writeBeside(file, text, mode)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temporary) }()
	return os.Link(temporary, file)
}

// removeIf removes a file if it has a content. Content that another program writes at the same time stays.
func removeIf(file string, text []byte) (removed bool, err error) {
	aside, err := writeBeside(file, nil, 0o600)
	if err != nil {
		return false, err
	}
	defer func() { _ = os.Remove(aside) }()
	if err := os.Rename(file, aside); err != nil {
		return false, err
	}
	have, err := os.ReadFile(filepath.Clean(aside))
	if err == nil && bytes.Equal(have, text) {
		return true, nil
	}
	if back := os.Link(aside, file); back != nil && !errors.Is(back, fs.ErrExist) { // a newer file stays
		return false, errors.Join(err, back)
	}
	return false, err
}
