package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// repository makes a small repository with a program, a chart and the list of an image's contents, as if it were Moonsail.
func repository(t *testing.T) *release {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"LICENSE": "licence\n",
		"go.mod":  "module example.com/mesh\n\ngo 1.26.0\n",
		"cmd/moonsail/main.go": `package main

func main() { println(release) }

var release = "none"
`,
		"cmd/moonsail-lab/main.go":                     "package main\n\nfunc main() {}\n",
		"deploy/charts/base/Chart.yaml":                "name: base\nversion: 0.0.0\nappVersion: x\n",
		"deploy/charts/base/templates/crd.yaml":        "{{ .Chart.Version }}\n",
		"deploy/charts/moonsail/Chart.yaml":            "name: moonsail\nversion: 0.0.0\n",
		"deploy/charts/moonsail/.helmignore":           "x\n",
		"deploy/charts/moonsail/charts/sub/Chart.yaml": "name: sub\nversion: 7.0.0\n",
	} {
		write(t, filepath.Join(root, name), text)
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "all"}} {
		cmd := exec.Command("git", append([]string{"-C", root}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z", "GIT_COMMITTER_DATE=2026-01-02T03:04:05+02:00")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	return &release{root: root, out: filepath.Join(t.TempDir(), "release"), version: "v1.2.3", image: "moonsail"}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// make runs the steps without the images, whose contents it makes up, and returns the files with their checksums.
func (r *release) make(t *testing.T) map[string]string {
	t.Helper()
	ctx := context.Background()
	if err := r.prepare(ctx); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal([]contents{{Architecture: "amd64", Digest: "sha256:" + strings.Repeat("a", 64), Envoy: "1.40.0", LibraryPackage: "libc6_2.36-9+deb12u1_amd64",
		Files: map[string]string{"usr/local/bin/envoy": strings.Repeat("b", 64), "lib/libc.so.6": strings.Repeat("c", 64), "etc/ssl/ca.crt": strings.Repeat("d", 64)}}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, r.stage("image", "contents.json"), string(text))
	for _, s := range steps {
		if s.name == "images" {
			continue
		}
		if err := s.run(r, ctx); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
	sums, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		out[name] = sum
	}
	return out
}

// TestReproducible checks that two runs write equal files, with other folders and at another time.
func TestReproducible(t *testing.T) {
	platforms = []platform{{"linux", "amd64"}, {"darwin", "arm64"}}
	r := repository(t)
	first := r.make(t)
	for _, name := range []string{
		"moonsail-1.2.3-linux-amd64.tar.gz", "moonsail-lab-1.2.3-linux-amd64.tar.gz", "moonsail-1.2.3-darwin-arm64.tar.gz",
		"base-1.2.3.tgz", "moonsail-1.2.3.tgz", "moonsail-1.2.3.spdx.json",
	} {
		if first[name] == "" {
			t.Errorf("%s is missing: %v", name, first)
		}
	}
	if len(first) != 6 {
		t.Errorf("%d files: %v", len(first), first)
	}
	second := *r
	second.out = filepath.Join(t.TempDir(), "elsewhere")
	for name, sum := range second.make(t) {
		if first[name] != sum {
			t.Errorf("%s differs", name)
		}
	}
	if chart := unpack(t, filepath.Join(r.out, "base-1.2.3.tgz")); chart["base/Chart.yaml"] != "name: base\nversion: \"1.2.3\"\nappVersion: \"1.2.3\"\n" || chart["base/templates/crd.yaml"] == "" {
		t.Errorf("chart: %v", chart)
	}
	if chart := unpack(t, filepath.Join(r.out, "moonsail-1.2.3.tgz")); !strings.Contains(chart["moonsail/charts/sub/Chart.yaml"], "7.0.0") || len(chart) != 2 {
		t.Errorf("a chart within a chart keeps its version: %v", chart)
	}
	if out, err := exec.Command("sh", "-c", "cd "+r.out+" && sha256sum --check --quiet SHA256SUMS").CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v: %s", err, out)
	}
	checkSPDX(t, r)
}

func unpack(t *testing.T, archive string) map[string]string {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(time.Unix(0, 0)) && !h.ModTime.IsZero() {
			t.Errorf("%s: has the time %s", h.Name, h.ModTime)
		}
		out[h.Name] = string(text)
	}
}

var (
	spdxID  = regexp.MustCompile(`^SPDXRef-[a-zA-Z0-9.-]+$`)
	hexSum  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	utcTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`)
)

// checkSPDX checks the fields that SPDX 2.3 requires of documents, packages and relationships.
func checkSPDX(t *testing.T, r *release) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.out, "moonsail-1.2.3.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d spdx
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.Version != "SPDX-2.3" || d.License != "CC0-1.0" || d.ID != "SPDXRef-DOCUMENT" || d.Name == "" || !strings.Contains(d.Namespace, r.commit) ||
		d.Creation.Created != "2026-01-02T01:04:05Z" || !utcTime.MatchString(d.Creation.Created) || len(d.Creation.Creators) == 0 {
		t.Errorf("document: %+v", d)
	}
	known := map[string]bool{d.ID: true}
	names := map[string]pkg{}
	for _, p := range d.Packages {
		if !spdxID.MatchString(p.ID) || known[p.ID] || p.Name == "" || p.Download == "" || p.Concluded == "" || p.Declared == "" || p.Copyright == "" {
			t.Errorf("package: %+v", p)
		}
		known[p.ID], names[p.Name] = true, p
		for _, c := range p.Checksums {
			if c.Algorithm != "SHA256" || !hexSum.MatchString(c.Value) {
				t.Errorf("%s: checksum %+v", p.ID, c)
			}
		}
		for _, ref := range p.Refs {
			if ref.Category != "PACKAGE-MANAGER" || ref.Type != "purl" || !strings.HasPrefix(ref.Locator, "pkg:") {
				t.Errorf("%s: reference %+v", p.ID, ref)
			}
		}
	}
	described := false
	for _, rel := range d.Relationships {
		if !known[rel.From] || !known[rel.To] {
			t.Errorf("relationship of unknown packages: %+v", rel)
		}
		described = described || rel.From == d.ID && rel.Type == "DESCRIBES"
	}
	if !described {
		t.Error("the document describes nothing")
	}
	if got := names["libc6"].Refs; len(got) != 1 || got[0].Locator != "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64" {
		t.Errorf("libc6: %+v", got)
	}
	if names["envoy"].Version != "1.40.0" || names["libc.so.6"].ID == "" || names["ca.crt"].ID == "" || names["stdlib"].ID == "" {
		t.Errorf("packages are missing: %v", known)
	}
}

// TestRefuses checks that a release needs a version and a clean repository.
func TestRefuses(t *testing.T) {
	r := repository(t)
	r.version = "one"
	if err := r.prepare(context.Background()); err == nil || !strings.Contains(err.Error(), "not a version") {
		t.Errorf("version: %v", err)
	}
	r.version, r.only = "1.2.3", "charts,chart"
	if err := r.prepare(context.Background()); err == nil || !strings.Contains(err.Error(), `-only "chart": unknown step`) {
		t.Errorf("step: %v", err)
	}
	r.only = ""
	write(t, filepath.Join(r.root, "LICENSE"), "another\n")
	if err := r.prepare(context.Background()); err == nil || !strings.Contains(err.Error(), "uncommitted changes") {
		t.Errorf("uncommitted: %v", err)
	}
	r.dirty = true
	if err := r.prepare(context.Background()); err != nil {
		t.Errorf("allowed: %v", err)
	}
}

// TestPackageURL checks the purl of modules whose paths and versions need escapes.
func TestPackageURL(t *testing.T) {
	for want, m := range map[string][2]string{
		"pkg:golang/github.com/docker/cli@v29.0.0%2Bincompatible": {"github.com/docker/cli", "v29.0.0+incompatible"},
		"pkg:golang/github.com/burntsushi/toml@v1.0.0":            {"github.com/BurntSushi/toml", "v1.0.0"},
	} {
		if got := golang(m[0], m[1]); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
