package kube

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/streaming/pkg/httpstream"
)

// slowDialer connects when it is released.
type slowDialer struct {
	called, release chan struct{}
	conn            *idleConnection
}

func (d *slowDialer) Dial(...string) (httpstream.Connection, string, error) {
	close(d.called)
	<-d.release
	return d.conn, "", nil
}

// idleConnection is a connection to an API server that opens no streams.
type idleConnection struct {
	httpstream.Connection
	closed chan bool
}

func (c *idleConnection) CloseChan() <-chan bool { return c.closed }

func (c *idleConnection) Close() error {
	close(c.closed)
	return nil
}

// TestTunnelDoesNotWaitForItsDialer checks that Dial and Close return while client-go still connects, and that a connection
// that comes too late is closed.
func TestTunnelDoesNotWaitForItsDialer(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent()) // other tests share an API server
	d := &slowDialer{called: make(chan struct{}), release: make(chan struct{}), conn: &idleConnection{closed: make(chan bool)}}
	tunnel := &Tunnel{dialer: d, port: "1"}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-d.called
		cancel()
	}()
	_, err := tunnel.Dial(ctx)
	require.ErrorIs(t, err, context.Canceled)
	tunnel.Close()
	_, err = tunnel.Dial(t.Context())
	require.ErrorIs(t, err, net.ErrClosed)
	close(d.release)
	<-d.conn.closed
}
