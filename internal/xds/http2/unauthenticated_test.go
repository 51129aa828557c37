package http2

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"
)

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
