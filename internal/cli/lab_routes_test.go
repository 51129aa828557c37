package cli

import (
	"bytes"
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
		{[]string{"--layout", "rsd"}, `there is no layout "rsd"`},
		{[]string{"--virtual-hosts", "0"}, "numbers of virtual hosts are 1 to"},
		{[]string{"--rate", "0"}, "rate must be above 0"},
		{[]string{"--phase", "0s"}, "phase must be above 0"},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			status, out, errOut := moonsail(t, append([]string{"lab", "routes"}, tc.args...)...)
			require.Equal(t, 2, status)
			require.Empty(t, out)
			require.Contains(t, errOut, tc.want)
		})
	}
}

func TestLabRoutesHelp(t *testing.T) {
	status, out, _ := moonsail(t, "lab", "routes", "--help")
	require.Zero(t, status)
	for _, l := range routes.Layouts() {
		require.Contains(t, out, l.Name)
		require.Contains(t, out, l.About)
	}
}

func TestPrintRoutes(t *testing.T) {
	good := routes.Result{Layout: "buckets-64", Hosts: 5000, Ratio: 1.2, ACK: routes.Spread{P50: 3}, Bytes: 970}
	slow, wrong, noisy := good, good, good
	noisy.Layout, noisy.Quiet.P99 = "buckets-32", 30
	slow.Layout, slow.Ratio = "vhds", 9
	wrong.Layout, wrong.Wrong = "srds", 3
	var b bytes.Buffer
	require.NoError(t, printRoutes(&b, &routes.Report{
		Results: []routes.Result{good, slow, wrong, noisy}, Keys: []routes.Key{{Name: "hash-64", CPU: 15, Added: 4.3}},
	}))
	for _, want := range []string{"buckets-64", "1.20x", "holds", "9.00x", "missed", "3 wrong", "noisy", "hash-64", "+4.30"} {
		require.Contains(t, b.String(), want)
	}
}
