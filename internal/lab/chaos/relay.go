package chaos

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// relay passes the connections of one client on to servers, as a Service does: a new connection goes to the next server
// that accepts it. It can hold, delay and reset connections.
type relay struct {
	listener net.Listener
	ended    sync.WaitGroup // of accept and of all connections
	cancel   context.CancelFunc

	mu      sync.Mutex // guards the fields below
	targets []string
	next    int           // index of the server to try first
	held    chan struct{} // closed when bytes pass; nil: they do
	delay   time.Duration // of each read
	open    map[net.Conn]bool
}

// newRelay listens on loopback.
func newRelay(first int, targets ...string) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it takes no time
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &relay{listener: l, cancel: cancel, targets: targets, next: first, open: map[net.Conn]bool{}}
	r.ended.Go(func() { r.accept(ctx) })
	return r, nil
}

func (r *relay) addr() string { return r.listener.Addr().String() }

func (r *relay) accept(ctx context.Context) {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.track(c, true)
		r.ended.Go(func() { r.serve(ctx, c) })
	}
}

func (r *relay) track(c net.Conn, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if open {
		r.open[c] = true
	} else {
		delete(r.open, c)
	}
}

func (r *relay) serve(ctx context.Context, c net.Conn) {
	defer func() { _ = c.Close(); r.track(c, false) }()
	if r.pass(ctx) != nil {
		return
	}
	up := r.dial(ctx)
	if up == nil {
		return
	}
	r.track(up, true)
	defer r.track(up, false)
	var both sync.WaitGroup
	both.Go(func() { r.copy(ctx, up, c) })
	r.copy(ctx, c, up)
	both.Wait()
}

// dial connects to the next server that accepts the connection; nil: none does.
func (r *relay) dial(ctx context.Context) net.Conn {
	r.mu.Lock()
	first, targets := r.next, r.targets
	r.next++
	r.mu.Unlock()
	for i := range targets {
		d := net.Dialer{Timeout: time.Second}
		if c, err := d.DialContext(ctx, "tcp", targets[(first+i)%len(targets)]); err == nil {
			return c
		}
	}
	return nil
}

// copy passes bytes on until one end closes, and closes both.
func (r *relay) copy(ctx context.Context, to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if r.pass(ctx) != nil {
			return
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits while bytes are held or delayed.
func (r *relay) pass(ctx context.Context) error {
	r.mu.Lock()
	held, delay := r.held, r.delay
	r.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if delay > 0 {
		return clock.Sleep(ctx, delay)
	}
	return ctx.Err()
}

// hold stops all bytes until the returned function is called. Connections stay open.
func (r *relay) hold() (release func()) {
	held := make(chan struct{})
	r.mu.Lock()
	r.held = held
	r.mu.Unlock()
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.held = nil
		close(held)
	}
}

// slow delays all bytes from now on.
func (r *relay) slow(by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = by
}

// reset ends all connections with a RST.
func (r *relay) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a connection that is closed already needs none
		}
		_ = c.Close()
	}
}

// stop ends the relay and its connections.
func (r *relay) stop() error {
	r.cancel()
	err := r.listener.Close()
	r.reset()
	r.ended.Wait()
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
