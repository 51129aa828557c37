package chaos

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// resendAfter is when TCP sends a lost packet again, at the earliest.
const resendAfter = 200 * time.Millisecond

// relay passes the connections of one client on to servers, as a Service does: a new connection goes to the next server
// that accepts it. It can hold, delay, stall, reset and refuse connections.
type relay struct {
	listener net.Listener
	ended    sync.WaitGroup // of accept and of all connections
	cancel   context.CancelFunc

	mu      sync.Mutex // guards the fields below
	targets []string
	next    int           // index of the server to try first
	held    chan struct{} // closed when bytes pass; nil: they do
	delay   time.Duration // of each read
	loss    float64       // the part of reads that a lost packet delays
	refuses bool          // new connections are reset
	refused int           // connections that were
	late    int           // reads that were delayed or stalled
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
	if r.refuse(c) || r.pass(ctx) != nil {
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
	if r.loss > 0 && rand.Float64() < r.loss { //nolint:gosec // no secret depends on it
		delay += resendAfter
	}
	if delay > 0 {
		r.late++
	}
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

// slow delays all bytes, and stalls a part of the reads, from now on. It returns how many reads were late before.
func (r *relay) slow(by time.Duration, loss float64) (late int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay, r.loss = by, loss
	return r.late
}

// disconnect resets all connections, and new ones until the returned function is called. That returns how many were.
func (r *relay) disconnect() (end func() int) {
	r.mu.Lock()
	before := r.refused
	r.refuses = true
	r.mu.Unlock()
	r.reset()
	return func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.refuses = false
		return r.refused - before
	}
}

// refuse resets a new connection if it is to be refused.
func (r *relay) refuse(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuses {
		r.refused++
		rst(c)
	}
	return r.refuses
}

// rst closes a connection with a RST.
func rst(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a connection that is closed already needs none
	}
	_ = c.Close()
}

// reset ends all connections with a RST.
func (r *relay) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.open {
		rst(c)
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
