package http2

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"

	"github.com/moonsail/moonsail/test/await"
)

var bye = &Status{Unavailable, "bye"}

// TestGracefulStopEndsStreams: the peer receives a GOAWAY, then long streams end with the status,
// after what was sent on them. No stream begins, and calls in progress are answered.
func TestGracefulStopEndsStreams(t *testing.T) {
	v, calls := serveLater(t)
	p := v.connect()
	held := p.open(hold)
	asked := p.ask()
	call := await.From(t, calls)
	require.NoError(t, v.call(0).Send([][]byte{[]byte("newest")}))
	stopped := make(chan struct{})
	go func() { defer close(stopped); v.s.GracefulStop(context.Background(), bye) }()
	ping := p.warned("newest")
	a := p.answer(held)
	require.Equal(t, fmt.Sprint(Unavailable), a.trailer["grpc-status"])
	require.Equal(t, "bye", a.trailer["grpc-message"])
	eventually(t, "the Receiver has ended", v.call(0).over) // right after its trailers
	late := p.open(hold)                                    // the peer has not read the GOAWAY
	for {
		r, ok := p.next().(*xhttp2.RSTStreamFrame)
		require.True(t, ok)
		if r.StreamID == late {
			require.Equal(t, xhttp2.ErrCodeRefusedStream, r.ErrCode, "the peer may try another server")
			break
		}
	}
	require.NoError(t, p.fr.WritePing(true, ping.Data))
	require.Equal(t, late, p.frame(xhttp2.FrameGoAway).(*xhttp2.GoAwayFrame).LastStreamID)
	call.answer <- nil
	require.Equal(t, "0", p.answer(asked).trailer["grpc-status"])
	p.gone()
	await.From(t, stopped)
}

// warned reads up to the first GOAWAY, its ping, and a message that was sent before, which may be
// on either side of them. It does not answer the ping.
func (p *peer) warned(message string) (ping *xhttp2.PingFrame) {
	p.t.Helper()
	away := false
	for got := ""; ping == nil || got != string(framed([]byte(message))); {
		f, err := p.fr.ReadFrame()
		require.NoError(p.t, err)
		switch f := f.(type) {
		case *xhttp2.DataFrame:
			got += string(f.Data())
		case *xhttp2.GoAwayFrame:
			require.Equal(p.t, uint32(maxWindow), f.LastStreamID)
			away = true
		case *xhttp2.PingFrame:
			require.True(p.t, away)
			ping = f
		}
	}
	return ping
}

// TestGracefulStopInHandshake: a peer in the handshake receives the GOAWAYs after it.
func TestGracefulStopInHandshake(t *testing.T) {
	v := serve(t, Options{})
	p := v.dial()
	p.frame(xhttp2.FrameSettings)
	stopped := make(chan struct{})
	go func() { defer close(stopped); v.s.GracefulStop(context.Background(), bye) }()
	p.frame(xhttp2.FrameGoAway)
	p.greet()
	id := p.open(hold)
	require.Equal(t, xhttp2.ErrCodeRefusedStream, *p.answer(id).reset)
	p.gone() // it answers the ping
	await.From(t, stopped)
}
