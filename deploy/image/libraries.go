package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// libraryFolders are the folders that the dynamic linkers of common distributions search.
var libraryFolders = map[elf.Machine][]string{
	elf.EM_X86_64:  {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"},
	elf.EM_AARCH64: {"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"},
}

// libraries returns the dynamic linker and the libraries that a program needs to start, sorted, at the paths where the
// linker finds them. It returns nothing for a statically linked program.
func libraries(program string) ([]string, error) {
	found := map[string]bool{}
	if err := addLibraries(program, found); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(found)), nil
}

func addLibraries(path string, found map[string]bool) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s: is not a program for Linux: %w", path, err)
	}
	defer func() { _ = f.Close() }() // it is only read
	if linker := interpreter(f); linker != "" {
		found[linker] = true
	}
	names, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: cannot read which libraries it needs: %w", path, err)
	}
	for _, name := range names {
		library, err := find(f.Machine, name)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if !found[library] {
			found[library] = true
			if err := addLibraries(library, found); err != nil {
				return err
			}
		}
	}
	return nil
}

func find(m elf.Machine, name string) (string, error) {
	for _, dir := range libraryFolders[m] {
		path := filepath.Join(dir, name)
		if f, err := elf.Open(path); err == nil {
			machine := f.Machine
			_ = f.Close() // it was only read
			if machine == m {
				return path, nil
			}
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("library %s for %s was not found in %s: install it", name, m, strings.Join(libraryFolders[m], ", "))
}

// interpreter returns the path of a program's dynamic linker; empty if it has none.
func interpreter(f *elf.File) string {
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			text, err := io.ReadAll(p.Open())
			if err == nil {
				return strings.TrimRight(string(text), "\x00")
			}
		}
	}
	return ""
}
