package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// entry is a file of an archive.
type entry struct {
	name    string // with the folders above it
	file    string // its content; empty: content
	content []byte
	mode    int64 // 0: 0o644
}

// pack writes files to a .tar.gz. It has no times and no owners, so that equal files make equal archives.
func pack(archive string, entries []entry) (err error) {
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() {
		if closed := out.Close(); err == nil {
			err = closed
		}
	}()
	zip, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(zip)
	for _, e := range entries {
		if e.file != "" {
			if e.content, err = os.ReadFile(e.file); err != nil {
				return err
			}
		}
		if e.mode == 0 {
			e.mode = 0o644
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.content))}); err != nil {
			return err
		}
		if _, err := w.Write(e.content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return zip.Close()
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}

// versionLine is the version of a chart, and that of the program that it installs.
var versionLine = regexp.MustCompile(`(?m)^(version|appVersion):.*$`)

// charts packs each chart of deploy/charts with the version of the release, in the form of `helm package`.
func (r *release) charts(context.Context) error {
	found, err := filepath.Glob(filepath.Join(r.root, "deploy", "charts", "*", "Chart.yaml"))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("deploy/charts has no chart")
	}
	for _, chart := range found {
		dir := filepath.Dir(chart)
		entries, err := r.chart(dir)
		if err != nil {
			return err
		}
		// A chart's folder has its name, as Helm requires.
		if err := pack(filepath.Join(r.out, filepath.Base(dir)+"-"+r.version+".tgz"), entries); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) chart(dir string) (out []entry, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		relative, err := filepath.Rel(filepath.Dir(dir), path)
		if err != nil || d.Name() == ".helmignore" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if d.Name() == "Chart.yaml" && filepath.Dir(path) == dir {
			if content, err = r.stamp(content); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		out = append(out, entry{name: filepath.ToSlash(relative), content: content})
		return nil
	})
	return out, err
}

// stamp replaces the versions of a Chart.yaml.
func (r *release) stamp(chart []byte) ([]byte, error) {
	seen := map[string]bool{}
	out := versionLine.ReplaceAllFunc(chart, func(line []byte) []byte {
		key, _, _ := strings.Cut(string(line), ":")
		seen[key] = true
		return []byte(key + `: "` + r.version + `"`)
	})
	if !seen["version"] {
		return nil, fmt.Errorf("no version")
	}
	return out, nil
}

// checksums writes SHA256SUMS, which `sha256sum --check` reads.
func (r *release) checksums(context.Context) error {
	const name = "SHA256SUMS"
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var lines []string
	for _, f := range files {
		if f.Name() == name {
			continue
		}
		sum, err := sha256Of(filepath.Join(r.out, f.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, sum+"  "+f.Name()+"\n")
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[66:], b[66:]) })
	return os.WriteFile(filepath.Join(r.out, name), []byte(strings.Join(lines, "")), 0o644)
}

func sha256Of(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
