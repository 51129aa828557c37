package dependencies

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/moonsail/moonsail/internal/base/atomicfile"
	"github.com/moonsail/moonsail/internal/base/clock"
)

// fileEvery is the interval of looking for changes of a file by other control planes.
const fileEvery = 5 * time.Second

// File is a Store in a file, for control planes without an API server. A write replaces the file in one step.
type File struct{ Path string }

// Place implements Store.
func (f File) Place() string { return f.Path }

// Watch implements Store. It fails if the file's folder cannot be read.
func (f File) Watch(ctx context.Context, see func(data []byte, version string)) error {
	last, first := "", true
	for {
		version, err := f.version()
		if err == nil && (first || version != last) {
			var data []byte
			if data, err = os.ReadFile(f.Path); err == nil || errors.Is(err, fs.ErrNotExist) {
				see(data, version)
				last, first = version, false
			}
		}
		if err != nil && first && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if clock.Sleep(ctx, fileEvery) != nil {
			return nil
		}
	}
}

// version identifies a file's content; empty: the file does not exist.
func (f File) version() (string, error) {
	info, err := os.Stat(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d %d", info.ModTime().UnixNano(), info.Size()), nil
}

// Write implements Store.
func (f File) Write(_ context.Context, data []byte, version string) (string, error) {
	now, err := f.version()
	if err != nil {
		return "", err
	}
	if now != version {
		return "", ErrChanged
	}
	if err := atomicfile.Write(f.Path, data); err != nil {
		return "", err
	}
	return f.version()
}
