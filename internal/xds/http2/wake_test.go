package http2

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/await"
)

// timed is a connection whose deadlines a test delays.
type timed struct {
	*net.TCPConn
	deadline func(time.Time)
}

func (c *timed) SetReadDeadline(t time.Time) error {
	c.deadline(t)
	return c.TCPConn.SetReadDeadline(t)
}

// timing is a listener of such connections.
type timing struct {
	net.Listener
	deadline func(time.Time)
}

func (l *timing) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &timed{c.(*net.TCPConn), l.deadline}, nil
}

// TestWakesOverlap: the second of two wakes is half done while the first is handled, and sets its
// deadline afterwards. The connection continues.
func TestWakesOverlap(t *testing.T) {
	late, handled := make(chan struct{}), make(chan struct{}, 10)
	held := make(chan struct{})
	wakes := 0 // the test's goroutines run one after the other
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	v := serveOn(t, &timing{ln, func(at time.Time) {
		switch {
		case at.IsZero():
			handled <- struct{}{}
		case at.Before(time.Unix(2, 0)):
			if wakes++; wakes == 1 {
				close(held)
				<-late
			}
		}
	}}, Options{Tick: time.Hour})
	p := v.connect()
	p.open(hold)
	c := v.call(0).conn
	await.From(t, handled) // of the handshake

	done := make(chan struct{})
	go func() { defer close(done); c.wake() }()
	await.From(t, held) // it will set its deadline
	c.wake()
	await.From(t, handled) // the second wake, whose deadline was cleared too
	close(late)
	await.From(t, done)
	p.lives()
	p.lives()
}
