package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/lab/routes"
)

func TestLabRoutesRefuses(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--layout", "rsd"}, `unknown layout "rsd"`},
		{[]string{"--virtual-hosts", "0"}, "numbers of virtual hosts are 1 to"},
		{[]string{"--rate", "0"}, "rate must be above 0"},
		{[]string{"--phase", "0s"}, "phase must be above 0"},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			status, out, errOut := runLab(t, append([]string{"routes"}, tc.args...)...)
			require.Equal(t, 2, status)
			require.Empty(t, out)
			require.Contains(t, errOut, tc.want)
		})
	}
}

func TestLabRoutesHelp(t *testing.T) {
	status, out, _ := runLab(t, "routes", "--help")
	require.Zero(t, status)
	out = strings.Join(strings.Fields(out), " ") // without its lines, which end at the width
	for _, l := range routes.Layouts() {
		require.Contains(t, out, l.Name)
		require.Contains(t, out, l.About)
	}
	require.Contains(t, out, "with --quick: rds, vhds, srds, buckets-256, product-auto)")
}
