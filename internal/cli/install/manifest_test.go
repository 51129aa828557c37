package install

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/terminal"
)

// manifest runs 'moonsail manifest'.
func manifest(args ...string) (string, error) {
	var out bytes.Buffer
	cmd := newManifestCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.Execute()
	return out.String(), err
}

func TestManifest(t *testing.T) {
	out, err := manifest("--image", "example.com/moonsail:1", "--revision", "blue", "--replicas", "3")
	require.NoError(t, err)
	for _, want := range []string{"example.com/moonsail:1", "replicas: 3", "--revision=blue", "name: moonsail-blue"} {
		require.Contains(t, out, want)
	}
	out, err = manifest("--image", "example.com/moonsail:1", "--revision", "Blue")
	require.Empty(t, out)
	var fault *terminal.UserError
	require.ErrorAs(t, err, &fault)
	require.ErrorContains(t, fault, `invalid revision "Blue"`)
	_, err = manifest()
	require.ErrorContains(t, err, "image")
}

// TestManifestOfOtherCharts checks that no flag is ignored.
func TestManifestOfOtherCharts(t *testing.T) {
	out, err := manifest("--chart", "cni", "--image", "example.com/moonsail:1")
	require.NoError(t, err)
	require.Contains(t, out, "image: example.com/moonsail:1\n")
	out, err = manifest("--chart", "gateway", "--revision", "blue")
	require.NoError(t, err)
	require.Contains(t, out, "istio.io/rev: \"blue\"")
	for _, args := range [][]string{{"gateway", "--image", "a:1"}, {"gateway", "--replicas", "3"}, {"cni", "--revision", "blue"}, {"base", "--image", "a:1"}} {
		_, err := manifest(append([]string{"--chart"}, args...)...)
		require.ErrorAs(t, err, &terminal.UsageError{}, args)
		require.ErrorContains(t, err, args[1]+": the chart "+args[0]+" does not use it")
	}
}
