package http2

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Handler is a method: it is called for each of its streams, as that begins, in the
// connection's goroutine.
type Handler func(*Stream) Receiver

// Receiver takes what comes on one stream. Its methods are called in the connection's
// goroutine, one after the other; while one runs, nothing of the connection is read.
type Receiver interface {
	// Receive takes a message, whose bytes are only valid during the call. An error ends
	// the stream with it as its status.
	Receive(message []byte) error
	// End is called once and last: the stream is over. Where the peer has ended its side
	// without an error, the stream's status is OK.
	End()
}

// Gatherer is a Receiver that may put off what it does of messages until it has all that came: a
// peer that was sent several messages at once answers them at once.
type Gatherer interface {
	Receiver
	// Gathered is called after Receive was, once or more, before more is waited for, and before the
	// stream ends in order. An error is like one of Receive.
	Gathered() error
}

// Finisher is a Receiver whose stream goes on after the peer has ended its side, until
// Stream.Finish: what it answers is made elsewhere. End is not called for what Finish ended.
type Finisher interface {
	Receiver
	// RemoteClosed is called when the peer has ended its side, without an error.
	RemoteClosed()
}

// Options are what a Server can be told. The zero value is good.
type Options struct {
	TLS                  *tls.Config   // nil: plain text, with prior knowledge
	MaxMessage           int           // bytes of a message, and of those unfinished or kept on a connection; what is beyond ends its stream with RESOURCE_EXHAUSTED
	LimitUnauthenticated bool          // peers without a verified certificate may do little, until Stream.Trust
	Handshake            time.Duration // until TLS, preface and settings are there
	Keepalive            time.Duration // without a byte from the peer, until a ping
	PingTimeout          time.Duration // without a byte after the ping, until the connection is closed
	FrameTime            time.Duration // that the rest of a frame or header block may take
	MaxAge               time.Duration // until a connection is told to go away, a tenth more or less; 0: when its peer's certificate expires
	MaxAgeGrace          time.Duration // after that, until its streams are ended, and it is closed; 0: when they have ended by themselves
	Tick                 time.Duration // how exactly these are kept; keep-alive and FrameTime to some
	Yield                func()        // called by loops before they read: it may wait for something urgent that takes little time, but not for a Stream
	Log                  *slog.Logger  // told why connections were ended by this side; nil: nobody is
}

func (o *Options) fill() {
	o.MaxMessage = cmp.Or(o.MaxMessage, defaultMaxMessage)
	o.Handshake = cmp.Or(o.Handshake, defaultHandshake)
	o.Keepalive = cmp.Or(o.Keepalive, defaultKeepalive)
	o.PingTimeout = cmp.Or(o.PingTimeout, defaultPingTimeout)
	o.FrameTime = cmp.Or(o.FrameTime, defaultFrameTime)
	o.Tick = cmp.Or(o.Tick, defaultTick)
	if o.Yield == nil {
		o.Yield = func() {}
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.TLS != nil {
		o.TLS = o.TLS.Clone()
		o.TLS.NextProtos = []string{"h2"}
		// Records of a write's size: else the first hundreds of them have 1 KB each.
		o.TLS.DynamicRecordSizingDisabled = true
	}
}

// Server serves methods. Its goroutines: Serve's, which accepts; the loops, which wait for
// connections at rest; one for each connection that is not; and the keeper, which looks after
// their time. Where there are no loops each connection has one, and another for as long as the
// kernel does not take what was written.
type Server struct {
	opts    Options
	methods map[string]Handler
	ctx     context.Context // of all streams; ends with Stop
	cancel  context.CancelFunc
	tick    atomic.Uint32  // the keeper's clock; begins at 1
	running sync.WaitGroup // the keeper, connections, and what streams have run
	loops   *loops         // nil: there are none

	mu        sync.Mutex // guards what follows
	listeners []net.Listener
	conns     map[*conn]struct{}
	stopping  bool
}

// ErrStopped is what Serve returns after Stop.
var ErrStopped = errors.New("the server was stopped")

// New makes a server of methods by path: "/package.Service/Method". Stop ends it.
func New(methods map[string]Handler, o Options) *Server {
	o.fill()
	s := &Server{opts: o, methods: methods, conns: map[*conn]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.tick.Store(1)
	s.loops = startLoops(o.Yield)
	s.running.Go(s.keep)
	return s
}

// Serve accepts connections until Stop, or until the listener fails. It closes the listener.
func (s *Server) Serve(ln net.Listener) error {
	defer ln.Close()
	if !s.listen(ln) {
		return ErrStopped
	}
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
			s.start(c)
		case s.stopped():
			return ErrStopped
		case temporary(err):
			s.pause()
		default:
			return err
		}
	}
}

// temporary tells whether accepting may succeed later: there are too many open files, or
// the peer has gone meanwhile.
func temporary(err error) bool {
	var e interface{ Temporary() bool }
	return errors.As(err, &e) && e.Temporary()
}

// pause waits a little.
func (s *Server) pause() {
	t := time.NewTimer(50 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}

func (s *Server) listen(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, ln)
	return !s.stopping
}

func (s *Server) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// start serves a connection, in a goroutine of its own at first.
func (s *Server) start(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.running.Add(1)
	go c.serve()
}

// left is called when a connection has ended.
func (s *Server) left(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.running.Done()
}

// Stop cuts all connections and waits until every Receiver has ended.
func (s *Server) Stop() {
	s.shut()
	s.cancel()
	for _, c := range s.all() {
		c.cut()
	}
	s.running.Wait()
	s.loops.Stop()
}

// GracefulStop accepts no more, tells peers to go away, and waits until all streams have
// ended or ctx ends; then it is Stop. Streams end by themselves, or with status where that is
// given, but for those of Finishers: they are answered.
func (s *Server) GracefulStop(ctx context.Context, status *Status) {
	s.shut()
	for _, c := range s.all() {
		c.goAway()
		c.dismiss(status)
	}
	tick := time.NewTicker(min(s.opts.Tick, 10*time.Millisecond))
	defer tick.Stop()
	for s.open() > 0 {
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		break
	}
	s.Stop()
}

// shut closes the listeners.
func (s *Server) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for _, ln := range s.listeners {
		ln.Close()
	}
}

// open is the number of connections.
func (s *Server) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		out = append(out, c)
	}
	return out
}

// keep looks after the connections' time, tick by tick.
func (s *Server) keep() {
	tick := time.NewTicker(s.opts.Tick)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case now := <-tick.C:
			n := s.tick.Add(1)
			for _, c := range s.all() {
				c.lookAfter(now, n)
			}
		}
	}
}

// ticks is a time in so many ticks at a time, one more than would do, as the first may be short.
func (s *Server) ticks(d time.Duration, each int) uint32 {
	t := s.opts.Tick * time.Duration(each)
	return uint32(min((d+t-1)/t, 1<<30)) + 1 //nolint:gosec // it has just been limited
}

// Paths are the methods, sorted.
func (s *Server) paths() []string {
	var out []string
	for p := range s.methods {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}
