package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/clitest"
)

func TestKubectlPlugin(t *testing.T) {
	root := NewRootCommand()
	asPlugin(root, []string{"/usr/local/bin/kubectl-moonsail", "proxies"})
	_, out, _ := clitest.Run(t, root, "proxies", "--help")
	require.Contains(t, out, "kubectl moonsail proxies [PROXY] [flags]")

	root = NewRootCommand()
	asPlugin(root, []string{"kubectl-moonsail"})
	status, _, errOut := clitest.Run(t, root, "proxies", "--nonsense")
	require.Equal(t, 2, status)
	require.Contains(t, errOut, "see 'kubectl moonsail proxies --help'")

	root = NewRootCommand()
	asPlugin(root, []string{"kubectl-moonsail"})
	status, _, errOut = clitest.Run(t, root, "authz", "check", "web-1.shop")
	require.Equal(t, 2, status)
	require.Contains(t, errOut, "error: authz: a command of istioctl only\n  next:  use 'kubectl moonsail experimental authz check PROXY'")
}

// TestPluginCompletion checks the program that kubectl runs to complete arguments.
func TestPluginCompletion(t *testing.T) {
	root := NewRootCommand()
	asPlugin(root, []string{"kubectl_complete-moonsail", "proxies", "-o", ""})
	var out output
	root.SetOut(&out)
	require.NoError(t, root.Execute())
	require.Contains(t, out.text, "wide\nname\n")
}

// output keeps what a command writes.
type output struct{ text string }

func (o *output) Write(b []byte) (int, error) {
	o.text += string(b)
	return len(b), nil
}
