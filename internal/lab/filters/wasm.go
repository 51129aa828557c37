package filters

import (
	"context"
	_ "embed" // the filter
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed filter.go.txt
var source string

// goVersion is the first version of Go whose compiler exports functions to the host of a WASM module.
const goVersion = "1.24"

// toolchain returns the Go compiler, or why there is none.
func toolchain() (path, why string) {
	path, err := exec.LookPath("go")
	if err != nil {
		return "", "no Go toolchain in PATH to build the filter"
	}
	return path, ""
}

// buildTime bounds the compiler, which builds Go's runtime for WASM the first time.
const buildTime = 3 * time.Minute

// build compiles the filter into a directory.
func build(ctx context.Context, compiler, dir string) (file string, err error) {
	for name, text := range map[string]string{"main.go": source, "go.mod": "module filter\n\ngo " + goVersion + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	file = filepath.Join(dir, "filter.wasm")
	cmd := exec.CommandContext(ctx, compiler, "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", file, ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOTOOLCHAIN=local", "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the WASM filter with %s: %w: %s", compiler, err, strings.TrimSpace(string(out)))
	}
	return file, nil
}
