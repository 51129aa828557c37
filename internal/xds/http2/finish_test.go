package http2

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	xhttp2 "golang.org/x/net/http2"

	"github.com/moonsail/moonsail/test/await"
)

const later = "/test.Service/Later" // answered by a goroutine when the test decides

// laterCall is a Finisher.
type laterCall struct {
	st           *Stream
	token        string
	kept         string     // its value after the Handler returned
	answer       chan error // from the test
	ended        atomic.Bool
	remoteClosed chan struct{} // closed when the peer has ended its side
	over         chan struct{} // closed when its goroutine ends
}

func (c *laterCall) Receive([]byte) error { return nil }
func (c *laterCall) End()                 { c.ended.Store(true) }

func (c *laterCall) RemoteClosed() {
	c.kept = c.st.Authorization()
	defer close(c.remoteClosed)
	c.st.Go(func() {
		defer close(c.over)
		select {
		case err := <-c.answer:
			if err == nil {
				_ = c.st.Send([][]byte{[]byte("answer")})
			}
			c.st.Finish(err)
		case <-c.st.Context().Done():
		}
	})
}

// serveLater serves a Finisher besides the usual methods.
func serveLater(t *testing.T) (*service, chan *laterCall) {
	t.Helper()
	return serveLaterWith(t, Options{Tick: time.Millisecond})
}

func serveLaterWith(t *testing.T, o Options) (*service, chan *laterCall) {
	t.Helper()
	calls := make(chan *laterCall, 10)
	v := serve(t, o, map[string]Handler{later: func(st *Stream) Receiver {
		c := &laterCall{st: st, token: st.Authorization(), answer: make(chan error, 1),
			remoteClosed: make(chan struct{}), over: make(chan struct{})}
		calls <- c
		return c
	}})
	return v, calls
}

func (p *peer) ask(more ...string) uint32 {
	id := p.open(later, more...)
	p.send(id, "question")
	p.half(id)
	return id
}

// TestFinish: a slow call delays no other call on its connection.
func TestFinish(t *testing.T) {
	v, calls := serveLater(t)
	p := v.connect()
	first := p.ask("authorization", "Bearer x")
	a := await.From(t, calls)
	require.Equal(t, "Bearer x", a.token)
	p.lives()
	second := p.ask()
	b := await.From(t, calls)
	require.Empty(t, b.token)
	b.answer <- &Status{Code: 7, Message: "no"}
	got := p.answer(second)
	require.Equal(t, "7", got.trailer["grpc-status"])
	a.answer <- nil
	got = p.answer(first)
	require.Equal(t, "0", got.trailer["grpc-status"])
	require.Equal(t, framed([]byte("answer")), got.data)
	await.From(t, a.over)
	await.From(t, b.over)
	require.Empty(t, a.kept)
	require.False(t, a.ended.Load() || b.ended.Load(), "Finish ended them")
	p.lives()
}

// TestFinishTooLate: the peer, or its deadline, ends the stream first. A later answer is dropped.
func TestFinishTooLate(t *testing.T) {
	for name, end := range map[string]func(p *peer, id uint32){
		"reset":      func(p *peer, id uint32) { require.NoError(p.t, p.fr.WriteRSTStream(id, xhttp2.ErrCodeCancel)) },
		"connection": func(p *peer, _ uint32) { _ = p.c.Close() },
		"time":       func(p *peer, id uint32) { require.Equal(p.t, "4", p.answer(id).trailer["grpc-status"]) },
	} {
		t.Run(name, func(t *testing.T) {
			v, calls := serveLater(t)
			p := v.connect()
			var more []string
			if name == "time" {
				more = []string{"grpc-timeout", "10m"}
			}
			id := p.ask(more...)
			c := await.From(t, calls)
			end(p, id)
			eventually(t, "the Receiver has ended", c.ended.Load)
			c.answer <- nil
			await.From(t, c.over)
			v.connect().lives()
		})
	}
}

// TestStopWaitsForFinish: Stop ends the context, and waits for goroutines of calls.
func TestStopWaitsForFinish(t *testing.T) {
	v, calls := serveLater(t)
	v.connect().ask()
	c := await.From(t, calls)
	await.From(t, c.remoteClosed)
	v.s.Stop()
	select {
	case <-c.over:
	default:
		require.Fail(t, "the goroutine still runs")
	}
}
