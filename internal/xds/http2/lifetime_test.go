package http2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"

	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/logtext"
)

// TestHalfClose: pending messages are answered, and the status is OK.
func TestHalfClose(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect()
	id := p.open(echo)
	p.send(id, "a", "b")
	p.half(id)
	a := p.answer(id)
	require.Equal(t, "200", a.header[":status"])
	require.Equal(t, "application/grpc", a.header["content-type"])
	require.Equal(t, append(framed([]byte("a")), framed([]byte("b"))...), a.data)
	require.Equal(t, map[string]string{"grpc-status": "0"}, a.trailer)
	eventually(t, "the Receiver has ended", v.call(0).over)
	p.lives()
}

// TestStatus: a Receiver's error is the stream's status, after what was sent before.
func TestStatus(t *testing.T) {
	v := serve(t, Options{})
	for name, c := range map[string]struct{ message, status, text string }{
		"a status":         {"\x07no, 100% ☹\n", "7", "no, 100%25 %E2%98%B9%0A"},
		"without words":    {"\x05", "5", ""},
		"any other error":  {"plain", "2", "it failed: 100%25 %E2%98%B9"},
		"a very long text": {"\x03" + long(100_000), "3", long(maxText)},
	} {
		t.Run(name, func(t *testing.T) {
			p := v.connect()
			p.t = t
			id := p.open(fail)
			for b := framed([]byte(c.message)); len(b) > 0; b = b[min(len(b), maxFrame):] {
				require.NoError(t, p.fr.WriteData(id, false, b[:min(len(b), maxFrame)]))
			}
			a := p.answer(id)
			require.Equal(t, c.status, a.trailer["grpc-status"])
			require.Equal(t, c.text, a.trailer["grpc-message"])
			require.Equal(t, xhttp2.ErrCodeNo, p.next().(*xhttp2.RSTStreamFrame).ErrCode, "the rest is not needed")
			p.send(id, "late") // on its way when the stream ended
			p.lives()
		})
	}
}

// TestEnds: however a stream ends, its Receiver's End is called once, and Send does no harm.
func TestEnds(t *testing.T) {
	for name, end := range map[string]func(v *service, p *peer){
		"reset":       func(_ *service, p *peer) { require.NoError(p.t, p.fr.WriteRSTStream(1, xhttp2.ErrCodeCancel)) },
		"half close":  func(_ *service, p *peer) { p.half(1) },
		"end of file": func(_ *service, p *peer) { require.NoError(p.t, p.c.(*net.TCPConn).CloseWrite()) },
		"cut": func(_ *service, p *peer) {
			require.NoError(p.t, p.c.(*net.TCPConn).SetLinger(0))
			require.NoError(p.t, p.c.Close())
		},
		"cut in a frame": func(_ *service, p *peer) {
			p.raw(string(appendFrame(nil, 100, xhttp2.FrameData, 0, 1)) + "abc")
			require.NoError(p.t, p.c.Close())
		},
		"error":     func(_ *service, p *peer) { p.raw("\x00\x00\x00\x05\x00\x00\x00\x00\x01") }, // PUSH_PROMISE
		"stop":      func(v *service, _ *peer) { v.s.Stop() },
		"malformed": func(_ *service, p *peer) { require.NoError(p.t, p.fr.WriteData(1, false, []byte{9, 9, 9, 9, 9})) },
	} {
		t.Run(name, func(t *testing.T) {
			v := serve(t, Options{})
			p := v.connect(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 1})
			p.t = t
			p.open(hold)
			c := v.call(0)
			require.NoError(t, c.Send([][]byte{[]byte("waits")}))
			end(v, p)
			eventually(t, "the Receiver has ended", c.over)
			require.ErrorIs(t, c.Send([][]byte{{1}}), ErrEnded)
		})
	}
}

// TestClosedStreams: frames for streams that have ended have other effects than frames for idle
// streams.
func TestClosedStreams(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect()
	id := p.open(echo)
	p.half(id)
	p.answer(id)
	require.NoError(t, p.fr.WriteWindowUpdate(id, 1))
	require.NoError(t, p.fr.WriteRSTStream(id, xhttp2.ErrCodeCancel))
	require.NoError(t, p.fr.WritePriority(id, xhttp2.PriorityParam{}))
	p.lives()
	require.NoError(t, p.fr.WriteData(id, false, []byte{1}))
	require.Equal(t, xhttp2.ErrCodeStreamClosed, *p.answer(id).reset)
	p.lives()
	require.NoError(t, p.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: p.block(usual(echo)...), EndHeaders: true}))
	p.goneWith(xhttp2.ErrCodeStreamClosed)

	for name, write := range map[string]func(p *peer) error{
		"DATA":          func(p *peer) error { return p.fr.WriteData(9, false, []byte{1}) },
		"WINDOW_UPDATE": func(p *peer) error { return p.fr.WriteWindowUpdate(9, 1000) },
		"RST_STREAM":    func(p *peer) error { return p.fr.WriteRSTStream(9, 0) },
		"even HEADERS": func(p *peer) error {
			return p.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 8, BlockFragment: p.block(usual(echo)...), EndHeaders: true})
		},
		"malformed even HEADERS": func(p *peer) error {
			return p.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 8, BlockFragment: p.block(":path", ""), EndHeaders: true})
		},
		"padding that is longer": func(p *peer) error {
			return p.fr.WriteRawFrame(xhttp2.FrameData, xhttp2.FlagDataPadded, 1, []byte{9, 1})
		},
		"padding without a length":          func(p *peer) error { return p.fr.WriteRawFrame(xhttp2.FrameData, xhttp2.FlagDataPadded, 1, nil) },
		"HEADERS that end in their padding": func(p *peer) error { return p.fr.WriteRawFrame(xhttp2.FrameHeaders, xhttp2.FlagHeadersPadded, 3, nil) },
		"HEADERS that end in their priority": func(p *peer) error {
			return p.fr.WriteRawFrame(xhttp2.FrameHeaders, xhttp2.FlagHeadersPriority, 3, []byte{1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := v.connect()
			p.t = t
			p.open(hold)
			require.NoError(t, write(p))
			p.goneWith(xhttp2.ErrCodeProtocol)
		})
	}
}

// TestOwnGoAway: a peer that sends GOAWAY is served until it closes the connection.
func TestOwnGoAway(t *testing.T) {
	p := serve(t, Options{}).connect()
	require.NoError(t, p.fr.WriteGoAway(0, xhttp2.ErrCodeNo, nil))
	p.lives()
}

// TestPipe: connections that are not sockets are served.
func TestPipe(t *testing.T) {
	v, p, stop := pipe(t)
	go func() {
		p.greet()
		id := p.open(echo)
		p.send(id, "through a pipe")
	}()
	require.Equal(t, "through a pipe", string(p.message(1)))
	stop()
	require.True(t, v.call(0).over())
}

// pipe returns a service with a peer on a connection that is not a socket.
func pipe(t *testing.T) (v *service, p *peer, stop func()) {
	v = newService(t, Options{})
	ln := &pipes{conns: make(chan net.Conn)}
	var serving sync.WaitGroup
	serving.Go(func() { _ = v.s.Serve(ln) })
	near, far := net.Pipe()
	ln.conns <- far
	return v, newPeer(t, near), func() {
		v.s.Stop()
		serving.Wait()
	}
}

// pipes is a listener for one connection that is not a socket.
type pipes struct {
	conns chan net.Conn
	once  sync.Once // guards the close of conns
}

func (l *pipes) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (l *pipes) Close() error   { l.once.Do(func() { close(l.conns) }); return nil }
func (l *pipes) Addr() net.Addr { return nil }

// flaky is a listener that fails once temporarily, and then permanently.
type flaky struct {
	net.Listener
	errs []error
}

type momentary struct{ error }

func (momentary) Temporary() bool { return true }

func (l *flaky) Accept() (net.Conn, error) {
	if len(l.errs) == 0 {
		return l.Listener.Accept()
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

func TestAccept(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	v := newService(t, Options{})
	broken := errors.New("broken")
	require.Equal(t, broken, v.s.Serve(&flaky{ln, []error{momentary{io.EOF}, broken}}))
	v.s.GracefulStop(context.Background(), nil)
	ln, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.ErrorIs(t, v.s.Serve(ln), ErrStopped, "it was stopped")
}

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
	ping := p.sentGoAway("newest")
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

// sentGoAway reads up to the first GOAWAY, its ping, and a message that was sent before, which may be
// on either side of them. It does not answer the ping.
func (p *peer) sentGoAway(message string) (ping *xhttp2.PingFrame) {
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
