package http2

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"

	"github.com/moonsail/moonsail/test/await"
)

// TestHandshakeInTime: peers that send nothing, or too little, are closed.
func TestHandshakeInTime(t *testing.T) {
	for _, s := range []string{"", xhttp2.ClientPreface[:10], xhttp2.ClientPreface, xhttp2.ClientPreface + "\x00\x00"} {
		givesUp(t, Options{}, func(v *service) *peer {
			p := v.dial()
			p.raw(s)
			return p
		})
	}
	conf := certificates(t)
	givesUp(t, Options{TLS: conf.server}, func(v *service) *peer { return v.dial().onTLS(conf.client) })
	v := serve(t, Options{Handshake: 10 * time.Millisecond, TLS: conf.server})
	p := v.dial()
	p.raw("\x16\x03\x01")
	p.gone()
}

// TestFirstRequestInTime: an unauthenticated peer is cut if it, or one of its streams, has no complete
// message in time. A stream that has one may stay, and so may the streams of a peer that is trusted.
func TestFirstRequestInTime(t *testing.T) {
	v := serveUnauthenticated(t, Options{Tick: time.Millisecond, FirstRequest: 50 * time.Millisecond})
	v.connect().gone()
	p := v.connect()
	p.announce(p.open(hold), 1000)
	p.gone()

	later := serveUnauthenticated(t, Options{Tick: time.Millisecond, FirstRequest: 500 * time.Millisecond})
	p = later.connect()
	p.send(p.open(hold), "first")
	p.lives() // the server has accepted the connection
	require.Never(t, func() bool { return later.s.open() == 0 }, 700*time.Millisecond, 50*time.Millisecond)
	p.announce(p.open(hold), 1000)
	p.gone()

	p = later.connect()
	p.send(p.open(trust), "it is me")
	p.announce(p.open(hold), 1000)
	p.lives()
	require.Never(t, func() bool { return later.s.open() == 0 }, 700*time.Millisecond, 50*time.Millisecond)
	p.lives()
}

// TestUnauthenticatedPeersLeave: an unauthenticated peer keeps no connection by a call that was refused or by one that it does not
// complete, and not for long by one call after the other.
func TestUnauthenticatedPeersLeave(t *testing.T) {
	called := func(st *Stream) Receiver {
		return &laterCall{st: st, answer: make(chan error, 1), remoteClosed: make(chan struct{}), over: make(chan struct{})}
	}
	v := serve(t, Options{LimitUnauthenticated: true, Tick: time.Millisecond, FirstRequest: 50 * time.Millisecond}, map[string]Handler{later: called})
	p := v.connect()
	p.send(p.open(fail), "plain")
	p.gone()

	p = v.connect()
	p.send(p.open(later), "question")
	p.gone()

	p = v.connect()
	for p.refusedCall() {
		for _, c := range v.s.all() {
			c.budget.Store(maxBudget) // a peer that calls less often than this one does not exhaust it
		}
	}
}

// refusedCall makes a call that is refused. It reports whether the connection is still there.
func (p *peer) refusedCall() bool {
	p.id += 2
	id := p.id | 1
	err := p.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: id, BlockFragment: p.block(usual(fail)...), EndHeaders: true})
	if err != nil || p.fr.WriteData(id, true, framed([]byte("plain"))) != nil {
		return false
	}
	for {
		switch f := p.next().(type) {
		case nil:
			return false
		case *xhttp2.MetaHeadersFrame:
			if f.StreamID == id && f.StreamEnded() {
				return true
			}
		case *xhttp2.RSTStreamFrame:
			return true
		}
	}
}

// givesUp waits until the server announces the end to a peer.
func givesUp(t *testing.T, o Options, dial func(*service) *peer) {
	t.Helper()
	withTime(t, func(enough time.Duration) bool {
		o.Handshake = enough
		f := dial(serve(t, o)).next()
		if f == nil {
			return false
		}
		g, ok := f.(*xhttp2.GoAwayFrame)
		require.True(t, ok, "%v", f)
		require.Equal(t, xhttp2.ErrCodeProtocol, g.ErrCode, "%s", g.DebugData())
		return true
	})
}

// withTime repeats a test of a connection that ends soon with more time, until the time suffices:
// with too little, the connection closes before both sides have sent everything.
func withTime(t *testing.T, try func(enough time.Duration) bool) {
	t.Helper()
	for enough := 200 * time.Millisecond; enough < testTimeout/2; enough *= 2 {
		if try(enough) {
			return
		}
	}
	require.Fail(t, "the connection has ended too early")
}

// TestFramesInTime: a header block, or another frame, that stalls ends the connection. DATA may be
// slow.
func TestFramesInTime(t *testing.T) {
	v := serve(t, Options{Tick: time.Millisecond, FrameTime: 5 * time.Millisecond})
	for name, s := range map[string]string{
		"frame header": "\x00\x00",
		"header block": string(appendFrame(nil, 10, xhttp2.FrameHeaders, 0, 3)) + "abc",
		"continuation": string(appendFrame(nil, 1, xhttp2.FrameHeaders, 0, 3)) + "\x82",
		"ping":         string(appendFrame(nil, 8, xhttp2.FramePing, 0, 0)) + "1234567",
	} {
		t.Run(name, func(t *testing.T) {
			p := v.connect()
			p.t = t
			p.raw(s)
			p.gone()
		})
	}
	p := v.connect()
	id := p.open(echo)
	b := framed([]byte("slow"))
	p.raw(string(appendFrame(nil, len(b), xhttp2.FrameData, 0, id)))
	now := v.s.tick.Load()
	for i := range b {
		eventually(t, "time passes", func() bool { return v.s.tick.Load() > now+10*uint32(i+1) })
		p.raw(string(b[i : i+1]))
	}
	require.Equal(t, "slow", string(p.message(id)))
}

// TestKeepAlive: a peer that answers pings stays connected, and one that does not is closed.
func TestKeepAlive(t *testing.T) {
	withTime(t, func(enough time.Duration) bool {
		v := serve(t, Options{Tick: time.Millisecond, Keepalive: 3 * time.Millisecond, PingTimeout: enough})
		p := v.connect()
		id := p.open(hold)
		for range 30 {
			f, err := p.fr.ReadFrame()
			if err != nil {
				return false
			}
			if ping, ok := f.(*xhttp2.PingFrame); ok {
				require.Equal(t, keepPing, ping.Data)
				_ = p.fr.WritePing(true, ping.Data)
			}
		}
		if v.begun() == 0 || v.call(0).Send([][]byte{[]byte("still here")}) != nil {
			return false
		}
		got := ""
		for {
			f, err := p.fr.ReadFrame()
			if err != nil { // answers have ended
				break
			}
			if d, ok := f.(*xhttp2.DataFrame); ok && d.StreamID == id {
				got += string(d.Data())
			}
		}
		eventually(t, "the stream has ended", v.call(0).over)
		return got == string(framed([]byte("still here")))
	})
}

// TestStalledPeerIsClosed: a peer that reads and sends nothing is closed, and its queue is dropped.
func TestStalledPeerIsClosed(t *testing.T) {
	withTime(t, func(enough time.Duration) bool {
		v := serve(t, Options{Tick: time.Millisecond, Keepalive: 20 * time.Millisecond, PingTimeout: enough})
		c, stalled := tryStall(v, 0, []byte(long(1<<20)))
		eventually(t, "the stream has ended", c.over)
		eventually(t, "nothing waits", func() bool { return c.Pending() == 0 })
		require.ErrorIs(t, c.Send([][]byte{{1}}), ErrEnded)
		return stalled
	})
}

// TestAge: an old connection ends in two steps. Open streams continue, including those that were
// opened between the steps. Then streams are refused, and the connection ends with the last stream.
func TestAge(t *testing.T) {
	var p *peer
	var first uint32
	var g *xhttp2.GoAwayFrame
	withTime(t, func(enough time.Duration) bool {
		p = serve(t, Options{Tick: time.Millisecond, MaxAge: enough}).connect()
		first = p.open(echo)
		f := p.next()
		if f == nil {
			return false
		}
		var ok bool
		g, ok = f.(*xhttp2.GoAwayFrame)
		require.True(t, ok, "%v", f)
		return true
	})
	require.Equal(t, uint32(maxWindow), g.LastStreamID)
	require.Equal(t, xhttp2.ErrCodeNo, g.ErrCode)
	second := p.open(echo) // the peer has not read the GOAWAY
	ping := p.frame(xhttp2.FramePing).(*xhttp2.PingFrame)
	require.NoError(t, p.fr.WritePing(true, ping.Data))
	require.Equal(t, second, p.frame(xhttp2.FrameGoAway).(*xhttp2.GoAwayFrame).LastStreamID)

	third := p.open(echo)
	require.Equal(t, xhttp2.ErrCodeRefusedStream, *p.answer(third).reset)
	for _, id := range []uint32{first, second} {
		p.send(id, "x")
		require.Equal(t, "x", string(p.message(id)))
		p.half(id)
		require.Equal(t, "0", p.answer(id).trailer["grpc-status"])
	}
	p.gone()
}

// frame returns the next frame of a type.
func (p *peer) frame(typ xhttp2.FrameType) xhttp2.Frame {
	p.t.Helper()
	for {
		f, err := p.fr.ReadFrame()
		require.NoError(p.t, err)
		if f.Header().Type == typ {
			return f
		}
	}
}

func TestAgeGrace(t *testing.T) {
	withTime(t, func(enough time.Duration) bool {
		v := serve(t, Options{Tick: time.Millisecond, MaxAge: enough, MaxAgeGrace: enough})
		p := v.connect()
		p.open(hold)
		for {
			if _, err := p.fr.ReadFrame(); err != nil {
				break
			}
		}
		if v.begun() == 0 {
			return false
		}
		eventually(t, "the stream has ended", v.call(0).over)
		return true
	})
}

// TestAgeEndsStreams: streams that stay on an old connection end with a status that gives the
// reason. Calls in progress may be answered after that.
func TestAgeEndsStreams(t *testing.T) {
	withTime(t, func(enough time.Duration) bool {
		v, calls := serveLaterWith(t, Options{Tick: time.Millisecond, MaxAge: enough, MaxAgeGrace: enough})
		p := v.connect()
		held, asked := p.open(hold), p.ask()
		aways, trailers := p.parts(held, func() {
			select {
			case call := <-calls:
				call.answer <- nil
			default: // the deadline passed before the stream existed
			}
		})
		if aways < 2 || trailers[held] == nil || trailers[asked] == nil {
			return false
		}
		require.Equal(t, fmt.Sprint(Unavailable), trailers[held]["grpc-status"])
		require.Equal(t, aged.Message, trailers[held]["grpc-message"])
		eventually(t, "the Receiver has ended", v.call(0).over)
		require.Equal(t, "0", trailers[asked]["grpc-status"])
		return true
	})
}

// parts reads up to the end of the connection, and answers pings. It returns the number of GOAWAYs,
// and the trailers of streams. ended is called when a stream has ended.
func (p *peer) parts(id uint32, ended func()) (aways int, trailers map[uint32]map[string]string) {
	trailers = map[uint32]map[string]string{}
	for {
		f, err := p.fr.ReadFrame()
		if err != nil {
			return aways, trailers
		}
		switch f := f.(type) {
		case *xhttp2.PingFrame:
			_ = p.fr.WritePing(true, f.Data)
		case *xhttp2.GoAwayFrame:
			aways++
		case *xhttp2.MetaHeadersFrame:
			if !f.StreamEnded() {
				continue
			}
			fields := map[string]string{}
			for _, h := range f.Fields {
				fields[h.Name] = h.Value
			}
			if trailers[f.StreamID] = fields; f.StreamID == id {
				ended()
			}
		}
	}
}

func TestGracefulStop(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect()
	id := p.open(echo)
	v.call(0)
	idle := v.connect()
	idle.lives()
	silent := v.dial()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		v.s.GracefulStop(context.Background(), nil)
	}()
	p.frame(xhttp2.FrameGoAway)
	ping := p.frame(xhttp2.FramePing).(*xhttp2.PingFrame)
	require.NoError(t, p.fr.WritePing(true, ping.Data))
	idle.gone()
	_ = silent.c.Close()
	p.send(id, "last words")
	require.Equal(t, "last words", string(p.message(id)))
	p.half(id)
	require.Equal(t, "0", p.answer(id).trailer["grpc-status"])
	await.From(t, stopped)
}

func TestGracefulStopEndsWithContext(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect()
	p.open(hold)
	c := v.call(0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	v.s.GracefulStop(ctx, nil)
	require.True(t, c.over())
	require.Error(t, c.Context().Err())
	p.gone()
}
