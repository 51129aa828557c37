package http2

import (
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	xhttp2 "golang.org/x/net/http2"
)

// conn is one connection. Whoever reads runs Receivers: that is a goroutine, called the connection's, or a loop for
// a turn.
type conn struct {
	// Read-only.
	server *Server
	socket *socket
	tls    *tls.Conn // nil: plain text
	phase  uint32    // the keeper's tick, of every sweep, in which it is looked at closely

	// old is when the server starts to close the connection; zero: never.
	old time.Time
	// expires is when the peer's certificate expires, in Unix seconds, as nanoseconds end in 2262;
	// 0: the peer has no certificate.
	expires atomic.Int64
	// soonest is the earliest deadline of a stream, in Unix nanoseconds; 0: there is none.
	soonest atomic.Int64

	// The goroutine's.
	in                  input
	inLoop              bool // it is a loop's, for a turn
	framer              *xhttp2.Framer
	lastID              uint32  // of the peer's newest stream
	credit              int     // bytes that the peer may still send
	unacknowledgedBytes int     // bytes that were taken and not credited again
	gathering           *Stream // the last one that took a message since we waited; nil: none did
	unauthenticated     bool    // nobody has said yet that the peer is known: limits are those of strangers

	// Between the goroutine and the keeper.
	active atomic.Bool   // bytes came since the keeper looked
	busy   atomic.Bool   // the goroutine is not waiting for bytes
	budget atomic.Int32  // frames that the peer may still bother us with
	behind atomic.Uint32 // tick since which the rest of a frame is awaited; 0: none is
	closed atomic.Bool

	mu      sync.Mutex // guards what follows, and the streams' fields that say so
	streams []*Stream  // open ones, few
	first   [1]*Stream // streams begins in it, and is seldom longer
	ready   []*Stream  // of these, the ones that have something to send
	control []byte     // frames to send before all others
	window  int        // bytes that the peer's connection takes
	initial int        // window of a new stream
	largest int        // of a DATA frame's payload
	resized bool       // the next header block must begin with a tableUpdate
	greeted bool       // settings were sent: frames may be
	corked  bool       // the goroutine is busy with what came: what is sent waits for it, to go together
	agreed  bool       // the handshake is over: deadlines are nudges from here on; the goroutine sets it
	leaving leaving
	parting *Status // what streams are to end with; nil: they are not
	goneAt  uint32  // streams above it are not taken any more, once leaving is told
	quiet   uint32  // sweeps without a byte
	pinged  bool    // in these
}

// leaving is how far a connection is on its way to its end. The peer is told twice: first
// that it is to open no more streams, and when what it had under way has arrived, which
// the answer to a ping tells, which stream was the last.
type leaving uint8

const (
	staying leaving = iota
	warned          // the first GOAWAY was sent, and the ping
	told            // the second GOAWAY was sent; the last stream's end is the connection's
)

var (
	errFlood   = xhttp2.ConnectionError(xhttp2.ErrCodeEnhanceYourCalm)
	errLeft    = errors.New("the connection has ended as agreed")
	errPreface = errors.New("the peer does not speak HTTP/2 (without TLS: with prior knowledge)")
	errSilent  = errors.New("the handshake took too long")
)

// gracePing is the ping between the two GOAWAYs; keepPing asks whether the peer is alive.
var (
	gracePing = [8]byte{'l', 'e', 'a', 'v', 'i', 'n', 'g'}
	keepPing  = [8]byte{'a', 'l', 'i', 'v', 'e'}
)

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{server: s, old: s.opts.oldFrom(time.Now()), window: firstWindow, initial: firstWindow, largest: maxFrame, credit: connWindow,
		phase: rand.Uint32N(sweep)} //nolint:gosec // nobody is to guess it, or not to
	c.socket = newSocket(nc, c.flushed)
	c.in.conn, c.in.whole, c.in.quota = c, true, maxBlock
	c.streams = c.first[:0]
	c.budget.Store(budgetMost)
	if s.opts.TLS != nil {
		c.tls = tls.Server(c.socket, s.opts.TLS)
	}
	return c
}

// serve is the connection's first goroutine.
func (c *conn) serve() {
	err := c.begin()
	if err == nil {
		c.socket.waits = false
	}
	c.carryOn(err)
}

// waits is called before the goroutine waits for bytes.
func (c *conn) waits(in *input) {
	switch {
	case in.whole || in.data: // a trickle of DATA is kept alive by what comes, not by us
		if c.behind.Load() != 0 {
			c.behind.Store(0)
		}
	case c.behind.Load() == 0:
		c.behind.Store(c.server.tick.Load())
	}
}

// attend is called when waiting was interrupted: by the keeper, or by the end of the time
// for the handshake. It ends the deadline first, and looks at what there is afterwards: what
// a nudge was for is seen, or its deadline comes after that and has it attend once more.
func (c *conn) handleWake() error {
	if !c.agreed {
		return errSilent
	}
	if err := c.socket.undeadline(); err != nil {
		return err
	}
	c.dismissAll()
	for _, st := range c.expired(time.Now()) {
		if st.receiver == nil {
			c.resetStream(st, xhttp2.ErrCodeCancel)
		} else {
			c.finish(st, statusf(DeadlineExceeded, "the stream's grpc-timeout is over"))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leaving == told && len(c.streams) == 0 {
		return errLeft
	}
	return nil
}

// nudge makes the goroutine attend, from another one, to what was changed before. Nudges may
// overlap with each other and with attend; during the handshake there must be none.
func (c *conn) wake() {
	if p := c.socket.polled; p != nil {
		p.nudged.Store(true)
		if p.wake() {
			c.busy.Store(true)
			go c.carryOn(nil)
		}
		return
	}
	_ = c.socket.SetReadDeadline(time.Unix(1, 0)) // where it fails the goroutine is about to end
}
