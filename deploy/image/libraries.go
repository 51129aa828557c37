package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// libraryFolders are the folders that the dynamic linkers of common distributions search.
var libraryFolders = map[elf.Machine][]string{
	elf.EM_X86_64:  {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"},
	elf.EM_AARCH64: {"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"},
}

// sysroot is the folder that takes the place of / for the libraries of a program.
type sysroot string

// libraries returns the dynamic linker and the libraries that a program needs to start, by the paths where the linker finds
// them in an image, with their files on this machine. It returns nothing for a statically linked program.
func (root sysroot) libraries(program string) (map[string]string, error) {
	found := map[string]string{}
	if err := root.add(program, found); err != nil {
		return nil, err
	}
	return found, nil
}

func (root sysroot) add(file string, found map[string]string) error {
	f, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("%s: is not a program for Linux: %w", file, err)
	}
	defer func() { _ = f.Close() }() // it is only read
	if linker := interpreter(f); linker != "" {
		found[linker] = root.file(linker)
	}
	names, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: cannot read which libraries it needs: %w", file, err)
	}
	for _, name := range names {
		library, err := root.find(f.Machine, name)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if found[library] == "" {
			found[library] = root.file(library)
			if err := root.add(found[library], found); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxLinks bounds a chain of symbolic links.
const maxLinks = 8

// file returns the file on this machine of a path below the root. It follows links of the file itself: an absolute one starts
// at the root.
func (root sysroot) file(path string) string {
	for range maxLinks {
		target, err := os.Readlink(filepath.Join(string(root), path))
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return filepath.Join(string(root), path)
}

func (root sysroot) find(m elf.Machine, name string) (string, error) {
	for _, dir := range libraryFolders[m] {
		path := filepath.Join(dir, name)
		if f, err := elf.Open(root.file(path)); err == nil {
			machine := f.Machine
			_ = f.Close() // it was only read
			if machine == m {
				return path, nil
			}
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("library %s for %s was not found below %s in %s: install it", name, m, root, strings.Join(libraryFolders[m], ", "))
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
