// Package labtest has what tests of experiments share with others that start moonsail in processes. The test binary
// acts as moonsail and moonsail-lab, so that tests run the code under test without a separate build.
package labtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/cli"
	"github.com/moonsail/moonsail/internal/lab/child"
	labcli "github.com/moonsail/moonsail/internal/lab/cli"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/netns"
)

const asMoonsail = "MOONSAIL_LAB_TEST_AS_MOONSAIL"

// AsMoonsail is the environment variable with which the test binary acts as moonsail or, if its first argument is a
// command of the lab, as moonsail-lab.
const AsMoonsail = asMoonsail + "=1"

// Main is TestMain: it runs moonsail, moonsail-lab, or the tests in a network namespace, which must leave no goroutine.
func Main(m goleak.TestingM, options ...goleak.Option) {
	if os.Getenv(asMoonsail) != "" {
		if isLab(os.Args[1:]) {
			os.Exit(labcli.Execute())
		}
		os.Exit(cli.Execute())
	}
	netns.Isolate()
	goleak.VerifyTestMain(m, options...)
}

// isLab reports whether arguments begin with a command of moonsail-lab. Moonsail has none of the same name.
func isLab(args []string) bool {
	cmd, _, err := labcli.NewRootCommand().Find(args)
	return err == nil && cmd.HasParent()
}

// Programs returns the command lines of moonsail and moonsail-lab, for children of this test.
func Programs(t *testing.T) child.Programs {
	t.Helper()
	t.Setenv(asMoonsail, "1")
	self, err := os.Executable()
	require.NoError(t, err)
	return child.Programs{Moonsail: []string{self}, Lab: []string{self}}
}

// Full reports whether tests run in full, as in make e2e-full.
func Full() bool { return os.Getenv("E2E_FULL") != "" }

// Long skips a test unless tests run in full: it uses two CPUs for half a minute or more.
func Long(t *testing.T) {
	t.Helper()
	if !Full() {
		t.Skip("takes long: set E2E_FULL=1, as make e2e-full does")
	}
}

// Sidecars returns the command lines of Programs, and Envoy's path.
func Sidecars(t *testing.T) (programs child.Programs, path string) {
	t.Helper()
	binary, err := envoy.Find("")
	require.NoError(t, err)
	return Programs(t), binary.Path
}

// Temporary gives the test a separate folder for temporary files.
func Temporary(t *testing.T) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
}

// LeftOver returns the existing temporary files.
func LeftOver(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	require.NoError(t, err)
	return files
}
