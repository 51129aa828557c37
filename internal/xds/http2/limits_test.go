package http2

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"

	"github.com/moonsail/moonsail/test/await"
)

// floods are cheap ways of a peer to keep the server busy.
var floods = map[string]func(p *peer) error{
	"pings":            func(p *peer) error { return p.fr.WritePing(false, [8]byte{1}) },
	"answers":          func(p *peer) error { return p.fr.WritePing(true, [8]byte{1}) },
	"settings":         func(p *peer) error { return p.fr.WriteSettings() },
	"acknowledgements": func(p *peer) error { return p.fr.WriteSettingsAck() },
	"empty DATA":       func(p *peer) error { return p.fr.WriteData(p.id, false, nil) },
	"priorities":       func(p *peer) error { return p.fr.WritePriority(p.id, xhttp2.PriorityParam{StreamDep: 0, Weight: 1}) },
	"small credits":    func(p *peer) error { return p.fr.WriteWindowUpdate(p.id, 1) },
	"unknown frames":   func(p *peer) error { return p.fr.WriteRawFrame(0x77, 0, 0, nil) },
	"GOAWAYs":          func(p *peer) error { return p.fr.WriteGoAway(0, 0, nil) },
	"resets":           func(p *peer) error { return p.fr.WriteRSTStream(p.id, xhttp2.ErrCodeCancel) },
	"rapid reset": func(p *peer) error {
		p.id += 2
		_ = p.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: p.id, BlockFragment: p.block(usual(hold)...), EndHeaders: true})
		return p.fr.WriteRSTStream(p.id, xhttp2.ErrCodeCancel)
	},
	"malformed requests": func(p *peer) error {
		p.id += 2
		return p.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: p.id, BlockFragment: p.block(":path", ""), EndHeaders: true})
	},
	"DATA on streams that have ended":    func(p *peer) error { return p.fr.WriteData(1, false, []byte{0}) },
	"credits of streams that have ended": func(p *peer) error { return p.fr.WriteWindowUpdate(1, 1<<10) },
	"overflows of windows": func(p *peer) error {
		return p.fr.WriteRawFrame(xhttp2.FrameWindowUpdate, 0, p.id, []byte{0, 0, 0, 0})
	},
}

// TestFloods: each flood is cut off early, and does not affect other connections.
func TestFloods(t *testing.T) {
	v := serve(t, Options{Tick: time.Hour}) // the budget is not refilled
	for name, flood := range floods {
		t.Run(name, func(t *testing.T) {
			p := v.connect()
			p.t = t
			p.open(hold)
			require.NoError(t, p.fr.WriteRSTStream(1, xhttp2.ErrCodeCancel))
			p.open(hold)
			read := make(chan struct{})
			go func() { // so that the server's answers do not fill the kernel's buffer
				defer close(read)
				p.goneWith(xhttp2.ErrCodeEnhanceYourCalm)
			}()
			for range 3 * maxBudget {
				if flood(p) != nil {
					break
				}
			}
			await.From(t, read)
		})
	}
	v.connect().lives()
}

// TestFloodsUnread: answers that the peer does not read do not accumulate.
func TestFloodsUnread(t *testing.T) {
	v := serve(t, Options{Tick: time.Hour})
	c := stall(v, 0, []byte(long(1<<20)))
	answers := 0
	for c.conn.output.sendControl(func(b []byte) []byte { return appendPing(b, xhttp2.FlagPingAck, [8]byte{}) }) == nil {
		answers++
	}
	require.LessOrEqual(t, answers*(frameHead+8), maxControl)
}

// TestUnreadWrites: what is written although the kernel takes nothing, as answers of TLS to key updates are, ends the connection
// before it takes much memory. That is so in event loops and in goroutines.
func TestUnreadWrites(t *testing.T) {
	overflow := func(s *socket) {
		written := 0
		for ; written <= 4*maxUnwritten; written += 1 << 10 {
			if _, err := s.Write(make([]byte, 1<<10)); err != nil {
				break
			}
			s.mu.Lock()
			require.LessOrEqual(t, len(s.rest), maxUnwritten+1<<10)
			s.mu.Unlock()
		}
		require.LessOrEqual(t, written, 3*maxUnwritten)
		require.ErrorIs(t, s.failure(), errFlood)
	}
	v := serve(t, Options{})
	overflow(stall(v, 0, []byte(long(1<<20))).conn.socket)
	eventually(t, "the connection has ended", func() bool { return v.s.open() == 0 })

	here, there := net.Pipe()
	s := newSocket(here, func() {})
	overflow(s)
	_, err := there.Read(make([]byte, 1<<10))
	require.ErrorIs(t, err, io.EOF)
	s.release()
}

// TestBudgetIsARate: over time, as many frames as a flood has are allowed.
func TestBudgetIsARate(t *testing.T) {
	v := serve(t, Options{Tick: time.Hour})
	p := v.connect()
	p.open(hold)
	c := v.call(0).conn
	for range 20 {
		for range maxBudget / 10 {
			require.NoError(t, p.fr.WritePing(false, [8]byte{1}))
		}
		p.lives()
		c.lifetime.refill() // as after a tick
		require.LessOrEqual(t, c.budget.Load(), int32(maxBudget))
	}
}

// TestContinuationFlood: a header block without an end is cut off, whether its parts are full or
// empty, before it takes memory.
func TestContinuationFlood(t *testing.T) {
	v := serve(t, Options{})
	for name, part := range map[string]func(p *peer) []byte{
		"empty":     func(*peer) []byte { return nil },
		"full":      func(p *peer) []byte { return p.block("x", long(maxFrame-100)) },
		"one byte":  func(*peer) []byte { return []byte{0x82} },
		"malformed": func(*peer) []byte { return []byte("\x00\x01A\x00") },
	} {
		t.Run(name, func(t *testing.T) {
			p := v.connect()
			p.t = t
			require.NoError(t, p.fr.WriteHeaders(xhttp2.HeadersFrameParam{StreamID: 1, BlockFragment: p.block(usual(echo)...)}))
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				p.gone()
			}()
			for range 1 << 20 {
				if p.fr.WriteContinuation(1, false, part(p)) != nil {
					break
				}
			}
			await.From(t, ended)
		})
	}
	v.connect().lives()
}

// TestMaxStreams: a stream above the limit is refused. After one has ended, the next is accepted.
func TestMaxStreams(t *testing.T) {
	v := serve(t, Options{})
	p := v.connect()
	for range maxStreams {
		p.open(hold)
	}
	id := p.open(hold)
	require.Equal(t, xhttp2.ErrCodeRefusedStream, *p.answer(id).reset)
	require.NoError(t, p.fr.WriteRSTStream(1, xhttp2.ErrCodeCancel))
	id = p.open(echo)
	p.send(id, "x")
	require.Equal(t, "x", string(p.message(id)))
}

// TestOversizeFrames: the connection ends before their payload is read.
func TestOversizeFrames(t *testing.T) {
	v := serve(t, Options{})
	for _, typ := range []xhttp2.FrameType{xhttp2.FrameData, xhttp2.FrameHeaders, xhttp2.FrameSettings, 0x77} {
		p := v.connect()
		p.open(hold)
		p.raw(string(appendFrame(nil, maxFrame+1, typ, 0, 1)))
		p.goneWith(xhttp2.ErrCodeFrameSize)
	}
}

// TestNoHTTP2: connections with another protocol end.
func TestNoHTTP2(t *testing.T) {
	v := serve(t, Options{})
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n\r\n",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a hello of TLS",
		"PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n",
		xhttp2.ClientPreface + "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678", // a ping before settings
		xhttp2.ClientPreface + "\x00\x00\x00\x04\x01\x00\x00\x00\x00",         // an acknowledgement before settings
	} {
		p := v.dial()
		p.raw(s)
		p.goneWith(xhttp2.ErrCodeProtocol)
	}
}

const (
	trust = "/test.Service/Trust" // its peer is trusted from its first message on
	keep  = "/test.Service/Keep"  // keeps messages
)

type trusting struct{ *call }

func (c trusting) Receive(b []byte) error {
	c.Trust()
	return c.call.Receive(b)
}

type keeping struct{ *call }

func (c keeping) Receive(b []byte) error {
	if err := c.call.Receive(b); err != nil {
		return err
	}
	return c.Keep(len(b))
}

// serveUnauthenticated serves peers that may be unauthenticated.
func serveUnauthenticated(t *testing.T, o Options) *service {
	o.LimitUnauthenticated = true
	return serve(t, o, map[string]Handler{
		trust: func(st *Stream) Receiver { return trusting{&call{Stream: st}} },
		keep:  func(st *Stream) Receiver { return keeping{&call{Stream: st}} },
	})
}

// announce begins a message of a size, and sends one byte of it.
func (p *peer) announce(id uint32, size int) {
	p.t.Helper()
	b := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(size)), 'x')
	require.NoError(p.t, p.fr.WriteData(id, false, b))
}

// exhausts expects the end of a stream whose message was too large.
func (p *peer) exhausts(id uint32) {
	p.t.Helper()
	a := p.answer(id)
	require.Equal(p.t, fmt.Sprint(ResourceExhausted), a.trailer["grpc-status"])
	require.Contains(p.t, a.trailer["grpc-message"], "unfinished messages")
}

// TestUnfinishedMessages: the unfinished messages of all streams count together, with their
// announced sizes, until they are complete or their stream has ended.
func TestUnfinishedMessages(t *testing.T) {
	const most = 1000
	p := serve(t, Options{MaxMessage: most}).connect()
	one, two := p.open(echo), p.open(echo)
	p.announce(one, most/2)
	p.announce(two, most/2)
	third := p.open(echo)
	p.announce(third, most/10)
	p.exhausts(third)
	p.lives() // complete messages do not count

	require.NoError(t, p.fr.WriteData(one, false, []byte(long(most/2-1))))
	require.Len(t, p.message(one), most/2)
	require.NoError(t, p.fr.WriteRSTStream(two, xhttp2.ErrCodeCancel))
	again := p.open(echo)
	p.announce(again, most)
	require.NoError(t, p.fr.WriteData(again, false, []byte(long(most-1))))
	require.Len(t, p.message(again), most)
}

// TestLimitsOfUnauthenticatedPeers: until they are trusted, they have few streams and little
// memory.
func TestLimitsOfUnauthenticatedPeers(t *testing.T) {
	v := serveUnauthenticated(t, Options{})
	p := v.connect()
	n, ok := p.frame(xhttp2.FrameSettings).(*xhttp2.SettingsFrame).Value(xhttp2.SettingMaxConcurrentStreams)
	require.True(t, ok)
	require.Equal(t, uint32(unauthenticatedStreams), n)
	for i := range unauthenticatedStreams {
		id := p.open(hold)
		if i < unauthenticatedStreams-1 {
			p.announce(id, unauthenticatedMessage/unauthenticatedStreams)
		}
	}
	id := p.open(hold)
	require.Equal(t, xhttp2.ErrCodeRefusedStream, *p.answer(id).reset)
	p.announce(id-2, 2*unauthenticatedMessage/unauthenticatedStreams)
	p.exhausts(id - 2)

	known := p.open(trust)
	p.send(known, "it is me")
	n, ok = p.frame(xhttp2.FrameSettings).(*xhttp2.SettingsFrame).Value(xhttp2.SettingMaxConcurrentStreams)
	require.True(t, ok)
	require.Equal(t, uint32(maxStreams), n)
	for range unauthenticatedStreams {
		p.announce(p.open(hold), unauthenticatedMessage)
	}
	p.lives()
}

// TestKeptMessages: what a Receiver keeps counts until its stream ends.
func TestKeptMessages(t *testing.T) {
	p := serveUnauthenticated(t, Options{MaxMessage: 100}).connect()
	first, second := p.open(keep), p.open(keep)
	p.send(first, long(60))
	p.send(second, long(60))
	p.exhausts(second)
	require.NoError(t, p.fr.WriteRSTStream(first, xhttp2.ErrCodeCancel))
	third := p.open(keep)
	p.send(third, long(60))
	p.half(third)
	require.Equal(t, "0", p.answer(third).trailer["grpc-status"])
}

// TestVerifiedCertificatesLiftLimits: a peer with a verified certificate has the usual limits.
func TestVerifiedCertificatesLiftLimits(t *testing.T) {
	conf := certificates(t)
	v := serveUnauthenticated(t, Options{TLS: conf.server})
	unknown := conf.client.Clone()
	unknown.Certificates = nil
	for most, client := range map[uint32]*tls.Config{maxStreams: conf.client, unauthenticatedStreams: unknown} {
		p := v.dial().onTLS(client)
		p.greet()
		n, _ := p.frame(xhttp2.FrameSettings).(*xhttp2.SettingsFrame).Value(xhttp2.SettingMaxConcurrentStreams)
		require.Equal(t, most, n)
	}
}
