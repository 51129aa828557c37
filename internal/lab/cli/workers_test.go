package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/terminal"
)

// TestWorkersOfLab: wrong flags are told by their names, before anything starts.
func TestWorkersOfLab(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"balance", "--workers", "1"}, "--workers is from 2"},
		{[]string{"balance", "--connections", "64,8"}, "--connections: the numbers must rise"},
		{[]string{"balance", "--connections", "2"}, "--connections is from the number of workers, 4, to 4096, not 2"},
		{[]string{"balance", "--budget", "1s"}, "--budget 30s or more"},
		{[]string{"balance", "now"}, `unexpected argument "now"`},
		{[]string{"concurrency", "--workers", "2,4"}, "--workers must begin with 1"},
		{[]string{"concurrency", "--quick", "--loads", "0"}, "--loads is from 1 to 400, not 0"},
		{[]string{"concurrency", "--connections", "0"}, "--connections is from 1 to 1024, not 0"},
		{[]string{"concurrency", "--rounds", "-1"}, "--rounds must not be negative"},
	} {
		status, _, errOut := runLab(t, tc.args...)
		require.Equal(t, terminal.ExitUsage, status, errOut)
		require.Contains(t, errOut, tc.want)
	}
}
