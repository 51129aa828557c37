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

// validateTimeout bounds a look at a bootstrap, as versionTimeout does.
const validateTimeout = 30 * time.Second

// logPrefix is what Envoy writes before a message.
var logPrefix = regexp.MustCompile(`^(\[[^\]]*\]\s*)+`)

// Validate has Envoy look at a bootstrap, and tells in its words why it would not start with it.
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

// Validated tells from the output of --mode validate, and how that ended, whether Envoy takes the
// configuration in a file. It does where it has said so: when it ends after that, Envoy 1.40
// crashes over a scope of statistics that listeners share. One that runs does not.
func Validated(out []byte, ended error, file string) bool {
	return ended == nil || bytes.Contains(out, []byte("configuration '"+file+"' OK\n"))
}
