package terminal

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestLogging(t *testing.T) {
	var l Logging
	cmd := &cobra.Command{Use: "x"}
	l.AddFlags(cmd)
	require.NoError(t, cmd.ParseFlags([]string{"--log-level", "warn", "--log-format", "json"}))
	var b bytes.Buffer
	log, err := l.Logger(&b)
	require.NoError(t, err)
	log.Info("no")
	log.Warn("yes")
	require.Contains(t, b.String(), `"msg":"yes"`)
	require.NotContains(t, b.String(), `"no"`)

	l.format = "xml"
	_, err = l.Logger(&b)
	require.ErrorContains(t, err, "use text or json")
}
