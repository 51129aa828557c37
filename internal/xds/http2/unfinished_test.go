package http2

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"
)

// TestMessageTime: a message that a verified peer does not complete, and a request whose message is kept, end after a time. Streams
// that wait for the next message stay.
func TestMessageTime(t *testing.T) {
	conf := certificates(t)
	v := serveUnauthenticated(t, Options{TLS: conf.server, Tick: time.Millisecond, MessageTime: 50 * time.Millisecond})
	p := v.dial().onTLS(conf.client)
	p.greet()
	stays := p.open(hold)
	p.send(stays, "whole")
	split := framed([]byte("in two parts"))
	require.NoError(t, p.fr.WriteData(stays, false, split[:3]))
	require.NoError(t, p.fr.WriteData(stays, false, split[3:]))
	late := func(id uint32) {
		a := p.answer(id)
		require.Equal(t, fmt.Sprint(DeadlineExceeded), a.trailer["grpc-status"])
		require.Contains(t, a.trailer["grpc-message"], "a message is not complete after 50ms")
	}
	for _, begin := range []func(id uint32){
		func(id uint32) {
			p.announce(id, 1<<20)
			require.NoError(t, p.fr.WriteData(id, false, []byte(long(maxFrame))))
		},
		func(id uint32) { require.NoError(t, p.fr.WriteData(id, false, []byte{0, 0})) },
	} {
		id := p.open(hold)
		begin(id)
		late(id)
	}
	id := p.open(keep)
	p.send(id, "kept")
	late(id)
	p.lives()
	require.False(t, v.call(0).over())
	require.Len(t, v.call(0).got(), 2)
}

// halves begins messages on two streams, and sends so much of them that the server counts it.
func (p *peer) halves() (one, two uint32) {
	p.t.Helper()
	for _, id := range []*uint32{&one, &two} {
		*id = p.open(hold)
		p.announce(*id, 10*maxFrame)
		for range 9 {
			require.NoError(p.t, p.fr.WriteData(*id, false, []byte(long(maxFrame))))
		}
	}
	return one, two
}

// TestUnfinishedMessagesOfAll: the unfinished messages of all connections have a bound, which small ones do not use up.
func TestUnfinishedMessagesOfAll(t *testing.T) {
	v := serve(t, Options{MaxUnfinished: unfinishedStep})
	counted := func() int {
		v.s.unfinished.mu.Lock()
		defer v.s.unfinished.mu.Unlock()
		return v.s.unfinished.all
	}
	first, second := v.connect(), v.connect()
	one, two := first.halves()
	eventually(t, "they count", func() bool { return counted() == unfinishedStep })
	_, refused := second.halves()
	a := second.answer(refused)
	require.Equal(t, fmt.Sprint(ResourceExhausted), a.trailer["grpc-status"])
	require.Contains(t, a.trailer["grpc-message"], "unfinished messages of all clients")
	second.lives()

	require.NoError(t, first.fr.WriteRSTStream(one, xhttp2.ErrCodeCancel))
	require.NoError(t, first.fr.WriteData(two, false, []byte(long(maxFrame-1))))
	eventually(t, "the message is complete", func() bool { return len(v.call(1).got()) == 1 })
	eventually(t, "nothing counts", func() bool { return counted() == 0 })
	third := v.connect()
	third.halves()
	eventually(t, "they count", func() bool { return counted() == unfinishedStep })
	require.NoError(t, third.c.Close())
	eventually(t, "nothing counts", func() bool { return counted() == 0 })
}

// TestUnfinishedMessagesOfAddress: a host uses up a part of the bound, and leaves nothing behind.
func TestUnfinishedMessagesOfAddress(t *testing.T) {
	u := unfinishedBytes{most: 100 * unfinishedOfAddress, of: map[netip.Addr]int{}}
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
	require.True(t, u.take(at("10.0.0.1"), 100))
	require.False(t, u.take(at("10.0.0.1"), 1))
	require.True(t, u.take(at("10.0.0.2"), 100))
	require.True(t, u.take(at("127.0.0.1"), u.most-200))
	require.False(t, u.take(at("10.0.0.3"), 1))
	u.give(at("127.0.0.1"), u.most-200)
	u.give(at("10.0.0.1"), 100)
	require.True(t, u.take(at("10.0.0.1"), 100))
	u.give(at("10.0.0.1"), 100)
	u.give(at("10.0.0.2"), 100)
	require.Zero(t, u.all)
	require.Empty(t, u.of)
}
