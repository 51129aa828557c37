// Package clitest runs command lines in tests.
package clitest

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/terminal"
)

// Root returns a command tree like moonsail's, with some of its commands.
func Root(commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{Use: "moonsail"}
	terminal.SetUp(root)
	root.AddCommand(commands...)
	return root
}

// Run runs a command line and returns its exit status, standard output and standard error.
func Run(t *testing.T, root *cobra.Command, args ...string) (status int, out, errOut string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	root.SetArgs(args)
	status = terminal.Run(t.Context(), root)
	return status, stdout.String(), stderr.String()
}
