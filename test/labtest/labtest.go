// Package labtest is what tests of experiments share, and others that start moonsail in processes: their own
// binary is moonsail, so that what runs is what is tested, without being built first.
package labtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/cli"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

const asMoonsail = "MOONSAIL_LAB_TEST_AS_MOONSAIL"

// AsMoonsail is what a process of the test binary has in its environment to be moonsail.
const AsMoonsail = asMoonsail + "=1"

// Main is TestMain: moonsail, or the tests, which must leave no goroutine.
func Main(m goleak.TestingM, options ...goleak.Option) {
	if os.Getenv(asMoonsail) != "" {
		os.Exit(cli.Execute())
	}
	goleak.VerifyTestMain(m, options...)
}

// Moonsail is moonsail's command line, for children of this test.
func Moonsail(t *testing.T) []string {
	t.Helper()
	t.Setenv(asMoonsail, "1")
	self, err := os.Executable()
	require.NoError(t, err)
	return []string{self}
}

// Full tells whether tests are run in full, as by make e2e-full, and not for each change alone.
func Full() bool { return os.Getenv("E2E_FULL") != "" }

// Long leaves a test out where tests are not run in full: it puts load on real sidecars or a real API server for
// half a minute and more, of two CPUs.
func Long(t *testing.T) {
	t.Helper()
	if !Full() {
		t.Skip("takes long: set E2E_FULL=1, as make e2e-full does")
	}
}

// Sidecars are moonsail's command line and Envoy's path.
func Sidecars(t *testing.T) (moonsail []string, path string) {
	t.Helper()
	binary, err := envoy.Find("")
	require.NoError(t, err)
	return Moonsail(t), binary.Path
}

// Temporary gives the test a folder of its own for temporary files.
func Temporary(t *testing.T) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
}

// LeftOver are the temporary files that there are.
func LeftOver(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	require.NoError(t, err)
	return files
}
