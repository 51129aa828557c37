//go:build linux

package http2

import (
	"bytes"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"

	"github.com/moonsail/moonsail/test/await"
)

// awaitIdle waits until a connection has no reader.
func awaitIdle(t *testing.T, c *conn) {
	t.Helper()
	eventually(t, "the connection is idle", func() bool { return c.socket.polled.state.Load() == idle })
}

// TestIdleConnection: an idle connection has no goroutine, whatever it received, and the next message is
// processed.
func TestIdleConnection(t *testing.T) {
	conf := certificates(t)
	for name, o := range map[string]Options{"plain": {}, "TLS": {TLS: conf.server}} {
		t.Run(name, func(t *testing.T) {
			v := serve(t, o)
			p := v.dial()
			if o.TLS != nil {
				p = p.onTLS(conf.client)
			}
			p.greet()
			id := p.open(echo)
			c := v.call(0).conn
			for _, m := range []string{"small", "slow", long(quickMost), long(3 * maxFrame), "", "small"} {
				for b := framed([]byte(m)); len(b) > 0; b = b[min(len(b), maxFrame):] {
					require.NoError(t, p.fr.WriteData(id, false, b[:min(len(b), maxFrame)]))
				}
				require.Equal(t, m, string(p.message(id)))
				awaitIdle(t, c)
			}
			eventually(t, "no connection has a goroutine", func() bool { return !reads() }) // it ends right after the connection is idle
			p.half(id)
			require.Equal(t, "0", p.answer(id).trailer["grpc-status"])
			awaitIdle(t, c)
		})
	}
}

// reads reports whether any connection has a goroutine.
func reads() bool {
	b := make([]byte, 1<<20)
	return strings.Contains(string(b[:runtime.Stack(b, true)]), "http2.(*conn).run(")
}

// TestPartialFrames: frames that arrive in pieces are joined. Each piece arrives after the previous
// one was read.
func TestPartialFrames(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect()
	id := p.open(echo)
	c := v.call(0).conn
	var b bytes.Buffer
	data(t, &b, id, false, "one", "two")
	whole := b.Bytes()
	for n := 1; n < len(whole); n++ {
		awaitIdle(t, c)
		p.raw(string(whole[:n]))
		eventually(t, "the piece was read", func() bool { s := c.socket.polled.state.Load(); return s == waiting || s == idle })
		p.raw(string(whole[n:]))
		require.Equal(t, "one", string(p.message(id)), "%d bytes first", n)
		require.Equal(t, "two", string(p.message(id)), "%d bytes first", n)
	}
}

// held is a Receiver that waits.
type held struct{ until <-chan struct{} }

func (s held) Receive([]byte) error { <-s.until; return nil }
func (s held) End()                 {}

// TestWaitingReceiversDelayNoOthers: waiting Receivers, more than there are loops, delay no other connection.
func TestWaitingReceiversDelayNoOthers(t *testing.T) {
	const wait = "/test.Service/Wait"
	until, begun := make(chan struct{}), make(chan *Stream, 1)
	v := serve(t, Options{}, map[string]Handler{wait: func(st *Stream) Receiver { begun <- st; return held{until} }})
	defer close(until)
	var others []*peer
	for n := range 4 * runtime.GOMAXPROCS(0) {
		others = append(others, v.connect())
		others[n].open(echo)
		p := v.connect()
		id := p.open(wait)
		awaitIdle(t, await.From(t, begun).conn)
		p.send(id, "x")
	}
	for n, p := range others {
		awaitIdle(t, v.call(n).conn)
		p.send(p.id, "x")
		require.Equal(t, "x", string(p.message(p.id)))
	}
}

// TestIdleConnectionsEnd: idle connections notice their end, and the end of their peer.
func TestIdleConnectionsEnd(t *testing.T) {
	v := serve(t, Options{})
	p, other := v.connect(), v.connect()
	p.open(hold)
	other.open(hold)
	for n := range 2 {
		awaitIdle(t, v.call(n).conn)
	}
	require.NoError(t, p.c.Close())
	eventually(t, "its stream has ended", func() bool { return v.call(0).over() != v.call(1).over() })
	v.s.Stop()
	other.gone()
	require.True(t, v.call(0).over() && v.call(1).over())
}

// TestBusyHasGoroutine: a loop does not serve a peer that sends all the time.
func TestBusyHasGoroutine(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect()
	id := p.open(hold)
	c := v.call(0).conn
	awaitIdle(t, c)
	var b bytes.Buffer
	for range 200 {
		data(t, &b, id, false, long(100))
	}
	require.Greater(t, b.Len(), quickMost)
	p.raw(b.String())
	eventually(t, "everything has arrived", func() bool { return len(v.call(0).got()) == 200 })
	require.NoError(t, p.fr.WritePing(false, [8]byte{1}))
	require.True(t, p.frame(xhttp2.FramePing).(*xhttp2.PingFrame).IsAck())
	awaitIdle(t, c)
}

// TestLoopsYield: loops read nothing before Yield returns, and everything afterwards.
func TestLoopsYield(t *testing.T) {
	var urgent atomic.Bool
	var yields atomic.Int32 // calls in progress
	done := make(chan struct{})
	v := serve(t, Options{Yield: func() {
		if urgent.Load() {
			yields.Add(1)
			<-done
		}
	}})
	finish := sync.OnceFunc(func() { close(done) })
	t.Cleanup(finish) // otherwise Stop waits forever if a check below fails
	p := v.connect()
	id := p.open(echo)
	c := v.call(0)
	awaitIdle(t, c.conn)
	urgent.Store(true)
	// A loop may have left Yield before, with an event that it has not reported yet. The test sends
	// until one waits.
	eventually(t, "the loop yields", func() bool {
		return p.fr.WriteWindowUpdate(0, 1) == nil && yields.Load() > 0
	})
	p.send(id, "one")
	require.Equal(t, idle, c.conn.socket.polled.state.Load())
	require.Empty(t, c.got())
	finish()
	require.Equal(t, "one", string(p.message(id)))
}

// waitsForEnd is a Receiver that waits until its peer disconnects.
type waitsForEnd struct {
	*Stream
	waits, done chan struct{}
}

func (s waitsForEnd) Receive([]byte) error {
	ctx, cancel := s.RequestContext()
	defer cancel()
	close(s.waits)
	<-ctx.Done()
	close(s.done)
	return nil
}

func (s waitsForEnd) End() {}

// TestRequestContext: a waiting Receiver notices that the peer disconnects, with or without ending its side.
func TestRequestContext(t *testing.T) {
	const wait = "/test.Service/Present"
	for name, leave := range map[string]func(*peer){
		"closed": func(p *peer) { p.c.Close() },
		"reset": func(p *peer) {
			_ = p.c.(*net.TCPConn).SetLinger(0)
			p.c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			one := waitsForEnd{waits: make(chan struct{}), done: make(chan struct{})}
			v := serve(t, Options{}, map[string]Handler{wait: func(st *Stream) Receiver { one.Stream = st; return one }})
			p := v.connect()
			p.send(p.open(wait), "x")
			await.From(t, one.waits)
			require.Empty(t, one.done)
			leave(p)
			await.From(t, one.done)
		})
	}
}
