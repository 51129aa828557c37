package envoy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// PathVariable is the environment variable with the path of an Envoy.
const PathVariable = "MOONSAIL_ENVOY"

// modulePath distinguishes a checkout of Moonsail from other Go modules.
const modulePath = "github.com/moonsail/moonsail"

// Binary is an Envoy that was found.
type Binary struct {
	Path   string // absolute
	Source string // "--envoy", "MOONSAIL_ENVOY", "checkout", "beside the executable", "cache" or "PATH"
}

// NotFoundError lists where Find searched, and how to install Envoy.
type NotFoundError struct {
	Looked []string
}

// Error lists all places that were searched, and the two commands that install Envoy.
func (e *NotFoundError) Error() string {
	return fmt.Sprintf("Envoy %s was not found; run `moonsail envoy install` (in a checkout: `make envoy`), "+
		"or set its path with --envoy or %s. Searched:\n  %s", Version, PathVariable, strings.Join(e.Looked, "\n  "))
}

// UnusableError is about a path that a user has given, by a flag or a variable.
type UnusableError struct {
	Source string // "--envoy", or the variable
	Path   string
	Err    error
}

// Error returns all of it on one line.
func (e *UnusableError) Error() string {
	return fmt.Sprintf("%s=%s: not an executable file: %v: correct it, or unset it and run `moonsail envoy install`", e.Source, e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *UnusableError) Unwrap() error { return e.Err }

// Find returns the Envoy to run. It tries in this order: the given path (a flag, may be empty), $MOONSAIL_ENVOY, the
// tool folder of the checkout around the working directory or the executable, the folder of the executable, the user's cache, and $PATH if its
// version is the pinned one. A path that was given explicitly may have any version; if it does not exist, Find returns
// an error.
func Find(explicit string) (Binary, error) {
	if explicit != "" {
		return named(explicit, "--envoy")
	}
	if p := os.Getenv(PathVariable); p != "" {
		return named(p, PathVariable)
	}
	missing := &NotFoundError{}
	for _, dir := range checkouts() {
		if b, ok := installed(toolDir(dir), "checkout", missing); ok {
			return b, nil
		}
	}
	if b, ok := besideExecutable(missing); ok {
		return b, nil
	}
	if cache, err := os.UserCacheDir(); err == nil {
		if b, ok := installed(cacheDir(cache), "cache", missing); ok {
			return b, nil
		}
	}
	return onPath(missing)
}

func named(path, source string) (Binary, error) {
	if resolved, err := exec.LookPath(path); err == nil {
		path = resolved
	} else {
		return Binary{}, &UnusableError{Source: source, Path: path, Err: errors.Unwrap(err)}
	}
	abs, err := filepath.Abs(path)
	return Binary{Path: abs, Source: source}, err
}

func installed(dir, source string, missing *NotFoundError) (Binary, bool) {
	path := filepath.Join(dir, "envoy")
	if !executable(path) {
		missing.Looked = append(missing.Looked, path)
		return Binary{}, false
	}
	return Binary{Path: path, Source: source}, true
}

// besideExecutable looks in the folder of the executable, as in the image. There, PATH may be unset.
func besideExecutable(missing *NotFoundError) (Binary, bool) {
	dir, err := executableDir()
	if err != nil {
		return Binary{}, false
	}
	return installed(dir, "beside the executable", missing)
}

// executableDir returns the folder of the executable, without symbolic links if they can be resolved.
func executableDir() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	if resolved, err := filepath.EvalSymlinks(exe); err == nil {
		exe = resolved
	}
	return filepath.Dir(exe), nil
}

func onPath(missing *NotFoundError) (Binary, error) {
	path, err := exec.LookPath("envoy")
	if err != nil {
		missing.Looked = append(missing.Looked, "$PATH (no envoy)")
		return Binary{}, missing
	}
	version, err := VersionOf(context.Background(), path)
	if err != nil || version != Version {
		missing.Looked = append(missing.Looked, fmt.Sprintf("%s (version %q, wanted %s)", path, version, Version))
		return Binary{}, missing
	}
	abs, err := filepath.Abs(path)
	return Binary{Path: abs, Source: "PATH"}, err
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func toolDir(checkout string) string { return filepath.Join(checkout, ".tools", "envoy", Version) }

func cacheDir(cache string) string { return filepath.Join(cache, "moonsail", "envoy", Version) }

// DefaultDir returns the default folder of Install: the tool folder of the checkout, if inside of one, else the user's
// cache.
func DefaultDir() (string, error) {
	if dirs := checkouts(); len(dirs) > 0 {
		return toolDir(dirs[0]), nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no folder to install Envoy to: %w: set --dir", err)
	}
	return cacheDir(cache), nil
}

// checkouts returns the checkouts of Moonsail around the working directory and around the executable, in this order.
func checkouts() []string {
	var found []string
	add := func(from string) {
		if root, ok := checkoutAround(from); ok && (len(found) == 0 || found[0] != root) {
			found = append(found, root)
		}
	}
	if wd, err := os.Getwd(); err == nil {
		add(wd)
	}
	if dir, err := executableDir(); err == nil {
		add(dir)
	}
	return found
}

func checkoutAround(dir string) (string, bool) {
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(bytes.TrimSpace(mod), []byte("module "+modulePath+"\n")) {
			return dir, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", false
		}
		dir = parent
	}
}
