//go:build unix

package session

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFileLimit(t *testing.T) {
	require.NoError(t, RaiseFileLimit(64))
	var l syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l))
	require.Equal(t, l.Max, l.Cur, "children get as much as there is")
	require.ErrorContains(t, RaiseFileLimit(1<<50), "raise it (ulimit -Hn, LimitNOFILE) or measure fewer proxies (--mesh)")
}
