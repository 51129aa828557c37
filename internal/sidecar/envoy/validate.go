package envoy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// validateTimeout bounds the validation of a bootstrap.
const validateTimeout = 30 * time.Second

// logPrefix begins Envoy's log messages.
var logPrefix = regexp.MustCompile(`^(\[[^\]]*\]\s*)+`)

// Validate runs Envoy to validate a bootstrap, and returns Envoy's error.
func Validate(ctx context.Context, path, bootstrap string) error {
	ctx, cancel := context.WithTimeout(ctx, validateTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--mode", "validate", "--config-path", bootstrap,
		"--disable-hot-restart", "--allow-unknown-static-fields", "--log-level", "error").CombinedOutput()
	if Validated(out, err, bootstrap) {
		return nil
	}
	for line := range strings.Lines(string(out)) {
		line = logPrefix.ReplaceAllString(strings.TrimSpace(line), "")
		if rest, ok := strings.CutPrefix(line, "error initializing configuration '"+bootstrap+"': "); ok {
			return errors.New(rest)
		}
	}
	return fmt.Errorf("%s --mode validate: %w%s", path, err, quoteTail(out))
}

// Validated reports, from the output and exit of --mode validate, whether Envoy accepts the configuration in a file.
// Envoy 1.40 may crash at exit after it has accepted a configuration, over statistics that listeners share; the output
// counts then. An Envoy that runs does not crash.
func Validated(out []byte, ended error, file string) bool {
	return ended == nil || bytes.Contains(out, []byte("configuration '"+file+"' OK\n"))
}
