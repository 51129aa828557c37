package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/internal/terminal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runLab runs a command line and returns its exit status and output.
func runLab(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	root := NewRootCommand()
	var stdout, stderr bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(args)
	status = terminal.Run(t.Context(), root)
	return status, stdout.String(), stderr.String()
}

// placeMoonsail puts a moonsail into PATH: the test binary, which has a version.
func placeMoonsail(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(dir, "moonsail")))
	t.Setenv("PATH", dir)
}

func TestRoot(t *testing.T) {
	placeMoonsail(t)
	for _, tc := range []struct {
		args        []string
		status      int
		out, errOut string // substrings
	}{
		{[]string{}, 0, "Available Commands:", ""},
		{[]string{"--version"}, 0, "moonsail-lab version 0.1.0-dev", ""},
		{[]string{"balanec"}, 2, "", `unknown command "balanec" for "moonsail-lab"; did you mean "balance"?`},
		{[]string{"throughput", "--concurrency", "1,a"}, 2, "", `--concurrency "1,a": not a whole number`},
		{[]string{"balance", "--quick", "--out", "/dev/null/x"}, 1, "", "cannot write reports: mkdir /dev/null: not a directory\n  where: --out /dev/null/x\n"},
		{[]string{"routes", "--layout", "x"}, 2, "", `unknown layout "x": use rds, vhds, `},
		{[]string{"propagation", "--scenario", "x"}, 2, "", `unknown scenario "x": use connect-storm, endpoint, `},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			status, out, errOut := runLab(t, tc.args...)
			require.Equal(t, tc.status, status, errOut)
			require.Contains(t, out, tc.out)
			require.Contains(t, errOut, tc.errOut)
		})
	}
}

func TestWithoutMoonsail(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	status, _, errOut := runLab(t, "propagation", "--quick")
	require.Equal(t, terminal.ExitFailed, status)
	require.Contains(t, errOut, "moonsail is neither next to moonsail-lab nor in PATH\n  next:  run 'make build'")
}

func TestEveryCommandHasExamples(t *testing.T) {
	for _, cmd := range NewRootCommand().Commands() {
		if !cmd.Hidden {
			require.NotEmpty(t, cmd.Short, cmd.CommandPath())
			require.Contains(t, cmd.Example, cmd.CommandPath())
		}
	}
}
