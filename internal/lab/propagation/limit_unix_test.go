//go:build unix

package propagation

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileLimit(t *testing.T) {
	require.NoError(t, raiseFileLimit(64))
	var l syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l))
	require.Equal(t, l.Max, l.Cur, "children get as much as there is")
	require.ErrorContains(t, raiseFileLimit(1<<50), "raise it (ulimit -Hn, LimitNOFILE) or measure fewer proxies (--mesh)")
}
