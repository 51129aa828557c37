package http2

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// conn is one connection. Its reader runs Receivers: either a goroutine, called the connection's, or
// an event loop for one turn.
//
// What is read, what is written, and how long the connection lives are separate structs. They
// share the fields of conn.
type conn struct {
	// Read-only.
	server *Server
	socket *socket
	tls    *tls.Conn // nil: plain text

	reader       frameReader // the reader's
	inLoop       bool        // the reader's: it is an event loop, for a turn
	output       output
	lifetime     lifetime
	firstRequest firstRequestTimer

	// Shared by the reader and the lifetime goroutine.
	active atomic.Bool // bytes arrived since the lifetime goroutine checked
	// authenticated takes the connection from Options.Admit's count. It is called when the peer is authenticated, and at the end.
	authenticated func()

	busy    atomic.Bool   // the reader does not wait for bytes
	budget  atomic.Int32  // expensive frames that the peer may still send
	behind  atomic.Uint32 // tick since which the rest of a frame is awaited; 0: none is
	closed  atomic.Bool
	soonest atomic.Int64 // earliest deadline of a stream, in Unix nanoseconds; 0: there is none

	// mu guards what follows, the fields of output, and the fields of streams and lifetime
	// that say so.
	mu            sync.Mutex
	streams       []*Stream  // open ones, few
	first         [1]*Stream // streams begins in it, and is seldom longer
	held          int        // bytes of unfinished messages
	counted       int        // of these, those that the server counts
	handshakeDone bool       // the handshake is over, and wake may be called; the reader sets it
}

var (
	errFlood   = xhttp2.ConnectionError(xhttp2.ErrCodeEnhanceYourCalm)
	errLeft    = errors.New("the connection has ended as agreed")
	errPreface = errors.New("the peer does not speak HTTP/2 (without TLS: with prior knowledge)")
	errSilent  = errors.New("the handshake took too long")
)

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{server: s, authenticated: func() {}}
	c.reader = frameReader{conn: c, credit: connWindow}
	c.output = output{conn: c, window: firstWindow, initial: firstWindow, largest: maxFrame}
	c.lifetime = lifetime{conn: c, old: s.opts.oldFrom(time.Now()), phase: rand.Uint32N(sweep)} //nolint:gosec // need not be secret
	c.firstRequest.conn = c
	c.socket = newSocket(nc, c.output.flushed)
	c.reader.in.conn, c.reader.in.whole, c.reader.in.quota = c, true, maxBlock
	c.streams = c.first[:0]
	c.budget.Store(maxBudget)
	if s.opts.TLS != nil {
		c.tls = tls.Server(c.socket, s.opts.TLS)
	}
	return c
}

// serve is the connection's first goroutine.
func (c *conn) serve() {
	err := c.handshake()
	if err == nil {
		c.socket.waits = false
	}
	c.run(err)
}

// handshake does the TLS handshake, and exchanges the HTTP/2 prefaces.
func (c *conn) handshake() error {
	if err := c.socket.SetReadDeadline(time.Now().Add(c.server.opts.Handshake)); err != nil {
		return err
	}
	if c.tls != nil {
		if err := c.tlsHandshake(); err != nil {
			return err
		}
	}
	c.reader.unauthenticated = c.server.opts.LimitUnauthenticated && (c.tls == nil || len(c.tls.ConnectionState().VerifiedChains) == 0)
	if c.reader.unauthenticated {
		c.firstRequest.begin()
	} else {
		c.authenticated()
	}
	c.output.greet()
	if err := c.reader.readPreface(); err != nil {
		return err
	}
	c.reader.framer = newFramer(&c.reader.in)
	if err := c.reader.readSettings(); err != nil {
		return err
	}
	c.moveToLoop(c.server.loops)
	c.mu.Lock()
	c.handshakeDone = true
	c.mu.Unlock()
	return c.handleWake() // for what happened during the handshake
}

// tlsHandshake does the TLS handshake. What follows it is read by input, which does not wait in TLS.
func (c *conn) tlsHandshake() error {
	if err := c.tls.HandshakeContext(c.server.ctx); err != nil {
		return err
	}
	if p := c.tls.ConnectionState().NegotiatedProtocol; p != "h2" {
		return fmt.Errorf("the peer does not offer HTTP/2 with ALPN, but %q", p)
	}
	c.socket.waits, c.reader.in.tls = false, c.tls
	c.lifetime.noteExpiry()
	return nil
}

// readPreface reads the client's preface.
func (fr *frameReader) readPreface() error {
	preface := make([]byte, len(xhttp2.ClientPreface))
	if _, err := io.ReadFull(&fr.in, preface); err != nil {
		return err
	}
	if !bytes.Equal(preface, []byte(xhttp2.ClientPreface)) {
		return errPreface
	}
	return nil
}

func newFramer(from io.Reader) *xhttp2.Framer {
	f := xhttp2.NewFramer(nil, from)
	f.SetMaxReadFrameSize(maxFrame)
	f.SetReuseFrames()
	f.MaxHeaderListSize = maxHeaderList
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return f
}

// readSettings reads the first frame of the client, after its preface.
func (fr *frameReader) readSettings() error {
	f, err := fr.framer.ReadFrame()
	if err != nil {
		return err
	}
	s, ok := f.(*xhttp2.SettingsFrame)
	if !ok || s.IsAck() {
		return xhttp2.ConnectionError(xhttp2.ErrCodeProtocol)
	}
	return fr.settings(s)
}

// run reads, in the connection's goroutine, until the connection is idle or ends.
func (c *conn) run(err error) {
	if err == nil {
		err = c.reader.readFrames()
	}
	for err == errIdle {
		if c.becomeIdle() {
			return
		}
		err = c.reader.readFrames()
	}
	c.end(err)
}

// beforeWait is called before the reader waits for bytes.
func (c *conn) beforeWait(in *input) {
	switch {
	case in.whole || in.data: // slow DATA is bounded by MessageTime, and not by FrameTime
		if c.behind.Load() != 0 {
			c.behind.Store(0)
		}
	case c.behind.Load() == 0:
		c.behind.Store(c.server.tick.Load())
	}
}

// handleWake is called when a wait was interrupted: by wake, or by the end of the time for the
// handshake. It clears the deadline first and checks for work afterwards. A concurrent wake is either
// seen by the checks, or sets the deadline after it was cleared, which interrupts the next wait.
func (c *conn) handleWake() error {
	if !c.handshakeDone {
		return errSilent
	}
	if err := c.socket.clearDeadline(); err != nil {
		return err
	}
	c.lifetime.endDismissed()
	now := time.Now()
	for _, st := range c.expired(now) {
		if st.receiver == nil {
			c.resetStream(st, xhttp2.ErrCodeCancel)
		} else {
			c.finish(st, c.overdue(st, now))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lifetime.leaving == sentLastGoAway && len(c.streams) == 0 {
		return errLeft
	}
	return nil
}

// wake makes the reader call handleWake, from another goroutine, for a change that was made before.
// Calls may overlap with each other and with handleWake. It must not be called during the handshake.
func (c *conn) wake() {
	if p := c.socket.polled; p != nil {
		p.woken.Store(true)
		if p.wake() {
			c.busy.Store(true)
			go c.run(nil)
		}
		return
	}
	_ = c.socket.SetReadDeadline(time.Unix(1, 0)) // it fails only if the connection is about to end
}
