package agent

import (
	"bufio"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/test/bufconn"
)

// Whoever opens connections to the status ports and leaves them takes no descriptors away for good.
func TestIdleConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := bufconn.Listen(1 << 16)
		server := newStatusServer(http.NotFoundHandler())
		go func() { _ = server.Serve(ln) }()
		defer func() { _ = server.Close() }()
		for _, said := range []string{"", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"} {
			c, err := ln.DialContext(t.Context())
			require.NoError(t, err)
			_, err = io.WriteString(c, said)
			require.NoError(t, err)
			r := bufio.NewReader(c)
			if said != "" {
				res, err := http.ReadResponse(r, nil)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, res.Body)
				require.NoError(t, res.Body.Close())
				require.NoError(t, err)
			}
			_, err = r.ReadByte()
			require.ErrorIs(t, err, io.EOF)
			require.NoError(t, c.Close())
		}
	})
}
