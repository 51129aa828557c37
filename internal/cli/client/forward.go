package client

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/moonsail/moonsail/internal/terminal"
)

// InCluster reports whether the replica is a Pod of a cluster.
func (r *Replica) InCluster() bool { return r.pod != nil }

// URL returns the URL of a page that this machine can open without Forward. Only replicas outside of a cluster have one.
func (r *Replica) URL(path string) string { return terminal.WithoutPassword(r.base) + path }

// Forward carries connections of a listener to the Pod until ctx ends, and then closes the listener and all connections.
func (r *Replica) Forward(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var connections sync.WaitGroup
	defer connections.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // ends Accept
	defer stop()
	for {
		local, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
		connections.Go(func() { r.carry(ctx, local) })
	}
}

// carry copies both directions of a connection until both ends are closed, or ctx ends.
func (r *Replica) carry(ctx context.Context, local net.Conn) {
	defer local.Close()
	remote, err := r.tunnel.Dial(ctx)
	if err != nil {
		return // the client sees a closed connection
	}
	defer remote.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = local.Close(), remote.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { copyHalf(remote, local) })
	copyHalf(local, remote)
	both.Wait()
}

// copyHalf copies one direction, and passes on its end.
func copyHalf(to, from net.Conn) {
	_, err := io.Copy(to, from)
	half, ok := to.(interface{ CloseWrite() error })
	if err == nil && ok {
		_ = half.CloseWrite() // the other direction may continue
		return
	}
	_, _ = to.Close(), from.Close()
}
