package file

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Bounds of a tree, against cyclic links and files that are not configuration.
const (
	maxTreeDepth = 32
	maxFileSize  = 64 << 20
)

// listing is the content of a directory tree.
type listing struct {
	files []string
	dirs  []string
	errs  map[string]error // of paths that cannot be read
	enter func(dir string)
	most  int // files and directories; 0: no bound
}

// list walks a tree. Links are followed; names that start with a dot are left out
// (".git", and the "..data" of mounted ConfigMaps, whose files are links beside it). enter is called with each directory
// before its entries are read; nil: not called.
func list(root string, enter func(dir string)) listing {
	l := listing{errs: map[string]error{}, enter: enter}
	l.walk(root, 0, nil)
	return l
}

// walk adds dir; above are the real directories on the way to it.
func (l *listing) walk(dir string, depth int, above []os.FileInfo) {
	info, err := os.Stat(dir)
	if err != nil {
		l.fail(dir, err)
		return
	}
	for _, a := range above {
		if os.SameFile(a, info) {
			return
		}
	}
	if l.isFull() {
		return
	}
	if depth > maxTreeDepth {
		l.fail(dir, fmt.Errorf("directories are nested deeper than %d", maxTreeDepth))
		return
	}
	l.dirs = append(l.dirs, dir)
	if l.enter != nil {
		l.enter(dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		l.fail(dir, err)
	}
	for _, e := range entries {
		l.entry(filepath.Join(dir, e.Name()), e, depth, append(above, info))
	}
}

func (l *listing) entry(path string, e fs.DirEntry, depth int, above []os.FileInfo) {
	if strings.HasPrefix(e.Name(), ".") || l.isFull() {
		return
	}
	dir := e.IsDir()
	if e.Type()&fs.ModeSymlink != 0 {
		info, err := os.Stat(path)
		switch {
		case os.IsNotExist(err):
			return // a dangling link
		case err != nil && !isConfig(path):
			l.fail(path, err) // it may be a directory
			return
		}
		dir = err == nil && info.IsDir() // else reading it returns the error
	}
	switch {
	case dir:
		l.walk(path, depth+1, above)
	case isConfig(path):
		l.files = append(l.files, path)
	}
}

// isFull reports whether a listing has more than its bound.
func (l *listing) isFull() bool { return l.most > 0 && len(l.files)+len(l.dirs) > l.most }

func (l *listing) fail(path string, err error) {
	if !os.IsNotExist(err) { // the file was removed meanwhile; an event follows
		l.errs[path] = err
	}
}

// isConfig reports whether a file is read, by its name. Kustomize's own file is not: it has no apiVersion, and configures
// no mesh.
func isConfig(path string) bool {
	base := strings.ToLower(filepath.Base(path))
	if strings.HasPrefix(base, ".") || base == "kustomization.yaml" || base == "kustomization.yml" {
		return false
	}
	switch filepath.Ext(base) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// read reads a regular file whole.
func read(path string) ([]byte, os.FileInfo, error) {
	info, err := os.Stat(path) // before opening: opening a pipe would block
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(data) > maxFileSize {
		err = fmt.Errorf("%s is larger than %d MiB", path, maxFileSize>>20)
	}
	return data, info, err
}
