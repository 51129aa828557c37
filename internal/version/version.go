// Package version reports the build, from the information that the Go toolchain writes into the binary. The linker sets
// nothing.
package version

import (
	"debug/buildinfo"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Info describes a build.
type Info struct {
	Version  string `json:"version"`            // the build's tag, else "devel"
	Commit   string `json:"commit,omitempty"`   // full hash
	Time     string `json:"time,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified,omitempty"` // built from a tree with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"` // "linux/amd64"
}

// Get returns the running binary's build information.
func Get() Info {
	bi, _ := debug.ReadBuildInfo()
	return from(bi)
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

// pseudo begins the version that Go generates for a tree without a tag. The commit is more precise.
const pseudo = "v0.0.0-"

func from(bi *debug.BuildInfo) Info {
	info := Info{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if bi == nil {
		return info
	}
	if v := bi.Main.Version; v != "" && v != "(devel)" && !strings.HasPrefix(v, pseudo) {
		info.Version = v
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
	return info
}

// String returns one line: "devel (1a2b3c4d5e6f, modified) go1.26.0 linux/amd64".
func (i Info) String() string {
	s := i.Version
	if i.Commit != "" {
		short := i.Commit[:min(12, len(i.Commit))]
		if i.Modified {
			short += ", modified"
		}
		s += " (" + short + ")"
	}
	return fmt.Sprintf("%s %s %s", s, i.Go, i.Platform)
}
