package install

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/terminal"
)

func TestManifest(t *testing.T) {
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := newManifestCommand()
		cmd.SetArgs(args)
		cmd.SetOut(&out)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.Execute()
		return out.String(), err
	}
	out, err := run("--image", "example.com/moonsail:1", "--revision", "blue", "--replicas", "3")
	require.NoError(t, err)
	for _, want := range []string{"example.com/moonsail:1", "replicas: 3", "--revision=blue", "name: moonsail-blue"} {
		require.Contains(t, out, want)
	}
	out, err = run("--image", "example.com/moonsail:1", "--revision", "Blue")
	require.Empty(t, out)
	var fault *terminal.UserError
	require.ErrorAs(t, err, &fault)
	require.ErrorContains(t, fault, `invalid revision "Blue"`)
	_, err = run()
	require.ErrorContains(t, err, "image")
}
