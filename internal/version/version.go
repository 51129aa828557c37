// Package version reports the build, from the information that the Go toolchain writes into the binary. Only a release sets
// more: its version.
package version

import (
	"debug/buildinfo"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// IstioAPI is the version of Istio's API that this binary is built with. Nodes of proxies have it as their ISTIO_VERSION.
const IstioAPI = "1.31.1"

// release is the version of a release, which `make release` sets with the linker.
var release string

// Info describes a build.
type Info struct {
	Version  string `json:"version"`            // the build's tag, else as "0.1.0-dev+1a2b3c4d5e6f"
	Commit   string `json:"commit,omitempty"`   // full hash
	Time     string `json:"time,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified,omitempty"` // built from a tree with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"` // "linux/amd64"
}

// Get returns the running binary's build information.
func Get() Info {
	bi, _ := debug.ReadBuildInfo()
	info := from(bi)
	if release != "" {
		info.Version = release
	}
	return info
}

// Of returns the build information of the Go binary in a file.
func Of(file string) (Info, error) {
	bi, err := buildinfo.ReadFile(file)
	if err != nil {
		return Info{}, err
	}
	info := from(bi)
	info.Go = bi.GoVersion
	return info, nil
}

// next is the version that CHANGELOG.md prepares. A build without a tag comes before it.
const next = "0.1.0"

// shortCommit is the number of digits of a commit in a version.
const shortCommit = 12

// pseudo begins the version that Go generates for a tree without a tag. The commit is more precise.
const pseudo = "v0.0.0-"

func from(bi *debug.BuildInfo) Info {
	info := Info{Version: next + "-dev", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if bi == nil {
		return info
	}
	for _, s := range bi.Settings {
		switch s.Key {
		case "vcs.revision":
			info.Commit = s.Value
		case "vcs.time":
			info.Time = s.Value
		case "vcs.modified":
			info.Modified = s.Value == "true"
		}
	}
	if v := bi.Main.Version; v != "" && v != "(devel)" && !strings.HasPrefix(v, pseudo) {
		info.Version = v
	} else if info.Commit != "" {
		info.Version += "+" + info.short()
	}
	return info
}

func (i Info) short() string { return i.Commit[:min(shortCommit, len(i.Commit))] }

// String returns one line: "0.1.0-dev+1a2b3c4d5e6f (modified) go1.26.0 linux/amd64".
func (i Info) String() string {
	var notes []string
	if i.Commit != "" && !strings.HasSuffix(i.Version, "+"+i.short()) {
		notes = append(notes, i.short())
	}
	if i.Modified {
		notes = append(notes, "modified")
	}
	s := i.Version
	if len(notes) > 0 {
		s += " (" + strings.Join(notes, ", ") + ")"
	}
	return fmt.Sprintf("%s %s %s", s, i.Go, i.Platform)
}

// Istio is a build in the form in which istiod reports its own.
type Istio struct {
	Version string `json:"version"`
	Commit  string `json:"revision"`
	Go      string `json:"golang_version"`
	Status  string `json:"status"`
	Tag     string `json:"tag"`
}

// Istio returns the build in that form.
func (i Info) Istio() Istio {
	status := "Clean"
	if i.Modified {
		status = "Modified"
	}
	return Istio{Version: i.Version, Commit: i.Commit, Go: i.Go, Status: status, Tag: i.Version}
}
