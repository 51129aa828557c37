package http2

import (
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"

	"github.com/moonsail/moonsail/test/logtext"
)

// TestLog: violations of the protocol are logged as warnings, and usual events are not.
func TestLog(t *testing.T) {
	var log logtext.Buffer
	v := serve(t, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	p := v.connect()
	p.lives()
	require.NoError(t, p.c.(*net.TCPConn).CloseWrite())
	p.gone()
	require.Empty(t, log.String())

	p = v.connect()
	require.NoError(t, p.fr.WriteRawFrame(xhttp2.FrameWindowUpdate, 0, 0, []byte{0, 0, 0, 0}))
	p.goneWith(xhttp2.ErrCodeProtocol)
	require.Contains(t, log.String(), "level=WARN")
	require.Contains(t, log.String(), "PROTOCOL_ERROR")
	require.Contains(t, log.String(), p.c.LocalAddr().String())

	p = v.dial()
	p.raw("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	p.gone()
	require.Contains(t, log.String(), "does not speak HTTP/2")
}
