package connlimit_test

import (
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/base/connlimit"
	"github.com/moonsail/moonsail/test/await"
)

// TestLimits checks the bounds of one address and of all, and that a closed connection makes room.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limits connlimit.Limits
		second string // source address of the second connection
		want   bool   // it is served
	}{
		"of an address":       {connlimit.Limits{All: 9, OfAddress: 1}, "127.0.0.2", false},
		"of another address":  {connlimit.Limits{All: 9, OfAddress: 1}, "127.0.0.3", true},
		"of all":              {connlimit.Limits{All: 1, OfAddress: 9}, "127.0.0.3", false},
		"of this machine":     {connlimit.Limits{All: 9, OfAddress: 1, ExemptLoopback: true}, "127.0.0.2", true},
		"there is still room": {connlimit.Limits{All: 9, OfAddress: 2}, "127.0.0.2", true},
	} {
		t.Run(name, func(t *testing.T) {
			var refused atomic.Int32
			c.limits.Refused = func() { refused.Add(1) }
			inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			l := connlimit.Listen(inner, c.limits)
			served := make(chan net.Conn)
			go func() {
				defer close(served)
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					served <- conn
				}
			}()
			defer func() { require.NoError(t, l.Close()); require.Nil(t, await.From(t, served)) }()
			dial := func(from string) net.Conn {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
				conn, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
				require.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				return conn
			}
			dial("127.0.0.2")
			first := await.From(t, served)
			second := dial(c.second)
			if c.want {
				require.NoError(t, await.From(t, served).Close())
			} else {
				_, err := second.Read(make([]byte, 1))
				require.Error(t, err)
				require.EqualValues(t, 1, refused.Load())
			}
			require.NoError(t, first.Close())
			_ = first.Close() // counts once
			dial("127.0.0.2")
			require.NoError(t, await.From(t, served).Close())
		})
	}
}
