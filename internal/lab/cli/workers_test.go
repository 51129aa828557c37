package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/terminal"
)

// TestWrongWorkersFlags checks that an error names the wrong flag, before anything starts.
func TestWrongWorkersFlags(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"balance", "--workers", "1"}, "--workers 1: use 2 to"},
		{[]string{"balance", "--connections", "64,8"}, "--connections: list the numbers in ascending order"},
		{[]string{"balance", "--connections", "2"}, "--connections 2: use at least the number of workers, 4, and at most 4096"},
		{[]string{"balance", "--budget", "1s"}, "--budget must be at least 30s"},
		{[]string{"balance", "now"}, `unexpected argument "now"`},
		{[]string{"concurrency", "--workers", "2,4"}, "--workers must begin with 1"},
		{[]string{"concurrency", "--quick", "--loads", "0"}, "--loads 0: use 1 to 400"},
		{[]string{"concurrency", "--connections", "0"}, "--connections 0: use 1 to 1024"},
		{[]string{"concurrency", "--rounds", "-1"}, "--rounds must not be negative"},
	} {
		status, _, errOut := runLab(t, tc.args...)
		require.Equal(t, terminal.ExitUsage, status, errOut)
		require.Contains(t, errOut, tc.want)
	}
}
