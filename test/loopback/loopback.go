// Package loopback connects a test with itself.
package loopback

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pair returns both ends of a TCP connection on 127.0.0.1. The end of the test closes other, and mine unless it is
// closed.
func Pair(t *testing.T) (mine, other net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	mine, err = net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { mine.Close() })
	other, err = ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { other.Close() })
	return mine, other
}
