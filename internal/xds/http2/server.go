package http2

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// Handler is a method. It is called at the begin of each stream, in the connection's goroutine.
type Handler func(*Stream) Receiver

// Receiver receives the messages of one stream. Its methods are called in the connection's
// goroutine, one after the other. While one runs, the connection is not read.
type Receiver interface {
	// Receive processes a message. The bytes are valid only during the call. An error ends the
	// stream and is its status.
	Receive(message []byte) error
	// End is called last, exactly once. If the peer has ended its side without an error, the
	// stream's status is OK.
	End()
}

// BatchReceiver is a Receiver that answers all messages that arrived together at once: a peer that
// was sent several messages at once answers them at once.
type BatchReceiver interface {
	Receiver
	// EndBatch is called after one or more calls of Receive, before the connection waits for more,
	// and before the stream ends without an error. An error has the effect of an error of Receive.
	EndBatch() error
}

// InlineReceiver is a Receiver some of whose messages an event loop may process. The loop serves other
// connections too.
type InlineReceiver interface {
	Receiver
	// IsInline reports whether Receive, and EndBatch after it, process a message without waiting. It
	// is called in the connection's goroutine, before Receive and perhaps more than once.
	IsInline(message []byte) bool
}

// Finisher is a Receiver that answers after the peer has ended its side, with Stream.Finish. End is
// not called after Finish.
type Finisher interface {
	Receiver
	// RemoteClosed is called when the peer has ended its side, without an error.
	RemoteClosed()
}

// Options of a Server. The zero value is useful.
type Options struct {
	TLS                  *tls.Config // nil: plain text, with prior knowledge
	MaxMessage           int         // bytes of a message, and of the unfinished and kept messages of a connection; a larger one ends its stream with RESOURCE_EXHAUSTED
	MaxUnfinished        int         // received bytes of unfinished and kept messages, of all connections
	LimitUnauthenticated bool        // stricter limits for peers without a verified certificate, until Stream.Trust
	// Admit counts a connection until its peer is authenticated or it ends, with LimitUnauthenticated. false: there are too many, and it
	// is closed. nil: all are admitted.
	Admit        func(net.Addr) (leave func(), ok bool)
	Handshake    time.Duration // until TLS, preface and settings are done
	Keepalive    time.Duration // without a byte from the peer, until a ping
	PingTimeout  time.Duration // without a byte after the ping, until the connection is closed
	FirstRequest time.Duration // for the first message of an unauthenticated peer, and of each of its streams, with LimitUnauthenticated
	FrameTime    time.Duration // for the rest of a frame or header block
	MessageTime  time.Duration // for the rest of a message, and of a request whose messages are kept
	MaxAge       time.Duration // until a connection must go away, plus or minus 10 %; 0: until its peer's certificate expires
	MaxAgeGrace  time.Duration // after that, until its streams are ended and it is closed; 0: until its streams have ended
	Tick         time.Duration // precision of these times; of Keepalive, PingTimeout and FrameTime it is a few ticks
	Yield        func()        // called by loops before they read: it may wait for short urgent work, but not for a Stream
	Log          *slog.Logger  // of connections that this side ended; nil: no log
}

func (o *Options) fill() {
	o.MaxMessage = cmp.Or(o.MaxMessage, defaultMaxMessage)
	o.Handshake = cmp.Or(o.Handshake, defaultHandshake)
	o.Keepalive = cmp.Or(o.Keepalive, defaultKeepalive)
	o.PingTimeout = cmp.Or(o.PingTimeout, defaultPingTimeout)
	o.FirstRequest = cmp.Or(o.FirstRequest, defaultFirstRequest)
	o.MessageTime = cmp.Or(o.MessageTime, defaultMessageTime)
	o.MaxUnfinished = cmp.Or(o.MaxUnfinished, defaultMaxUnfinished)
	o.FrameTime = cmp.Or(o.FrameTime, defaultFrameTime)
	o.Tick = cmp.Or(o.Tick, defaultTick)
	if o.Yield == nil {
		o.Yield = func() {}
	}
	if o.Admit == nil || !o.LimitUnauthenticated {
		o.Admit = func(net.Addr) (func(), bool) { return func() {}, true }
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.TLS != nil {
		o.TLS = o.TLS.Clone()
		o.TLS.NextProtos = []string{"h2"}
		// Records have the size of a write. Otherwise the first hundreds have 1 KB each.
		o.TLS.DynamicRecordSizingDisabled = true
	}
}

// Server serves methods. Its goroutines are: Serve's, which accepts connections; the loops, which
// wait for idle connections; one for each connection that is not idle; and the lifetime goroutine, which checks
// the time of connections. Without loops each connection has a goroutine, and another one while the
// kernel does not take what was written. Stop ends all of them.
type Server struct {
	opts    Options
	methods map[string]Handler
	ctx     context.Context // of all streams; ends with Stop
	cancel  context.CancelFunc
	tick    atomic.Uint32  // the lifetime goroutine's clock; begins at 1
	running sync.WaitGroup // the lifetime goroutine, connections, and functions of Stream.Go
	loops   *loops         // nil: there are none

	unfinished unfinishedBytes

	mu        sync.Mutex // guards what follows
	listeners []net.Listener
	conns     map[*conn]struct{}
	stopping  bool
}

// ErrStopped is returned by Serve after Stop.
var ErrStopped = errors.New("the server was stopped")

// New returns a server of methods by path: "/package.Service/Method". Stop ends it.
func New(methods map[string]Handler, o Options) *Server {
	o.fill()
	s := &Server{opts: o, methods: methods, conns: map[*conn]struct{}{}}
	s.unfinished.most, s.unfinished.of = o.MaxUnfinished, map[netip.Addr]int{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.tick.Store(1)
	s.loops = startLoops(o.Yield)
	s.running.Go(s.keep)
	return s
}

// acceptPause is the time until the next attempt after an accept that may succeed later.
const acceptPause = 50 * time.Millisecond

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
			_ = clock.Sleep(s.ctx, acceptPause) // the end of s.ctx also closes the listener
		default:
			return err
		}
	}
}

// temporary reports whether accepting may succeed later: there are too many open files, or the peer
// has closed the connection.
func temporary(err error) bool {
	var e interface{ Temporary() bool }
	return errors.As(err, &e) && e.Temporary()
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

// start serves a connection, in a goroutine at first.
func (s *Server) start(nc net.Conn) {
	leave, ok := s.opts.Admit(nc.RemoteAddr())
	if !ok {
		nc.Close()
		return
	}
	c := newConn(s, nc)
	c.authenticated = leave
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		leave()
		nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	s.running.Add(1)
	go c.serve()
}

// left is called when a connection has ended.
func (s *Server) left(c *conn) {
	c.authenticated() // or it ends
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

// GracefulStop accepts no new connections, asks peers to go away, and waits until all streams have
// ended or ctx ends. Then it calls Stop. If status is not nil, it ends the streams with it, except
// those of Finishers, which are answered.
func (s *Server) GracefulStop(ctx context.Context, status *Status) {
	s.shut()
	for _, c := range s.all() {
		c.lifetime.goAway()
		c.lifetime.dismiss(status)
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

// open returns the number of connections.
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

// keep checks the connections at each tick.
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
				c.lifetime.check(now, n)
			}
		}
	}
}

// ticks returns how often each ticks pass within a time, plus one, as the first tick may be short.
func (s *Server) ticks(d time.Duration, each int) uint32 {
	t := s.opts.Tick * time.Duration(each)
	return uint32(min((d+t-1)/t, 1<<30)) + 1 //nolint:gosec // it is limited
}

// paths returns the paths of the methods, sorted.
func (s *Server) paths() []string {
	var out []string
	for p := range s.methods {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}
