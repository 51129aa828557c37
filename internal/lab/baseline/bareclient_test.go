package baseline

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDialBareLeavesNothingOpen checks that a dial closes its connection if the server does not greet.
func TestDialBareLeavesNothingOpen(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	ended := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			_ = c.(*net.TCPConn).CloseWrite() // the client's end is read below
			_, err = io.Copy(io.Discard, c)
			err = errors.Join(err, c.Close())
		}
		ended <- err
	}()
	_, err = DialBare(context.Background(), ln.Addr().String(), 1)
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, <-ended)
}
