package http2

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"

	xhttp2 "golang.org/x/net/http2"
)

// An idle connection has no goroutine and no buffer. An event loop waits for it, and processes
// small messages that need no waiting, which are nearly all messages of a proxy. For everything
// else, and for an incomplete frame, the connection has a goroutine until it is idle again.

// polled is a socket for which an event loop waits. Its reader is the loop, for a turn; or a
// goroutine, for work that a loop must not do. An idle connection has no reader.
type polled struct {
	loop   *loop
	state  atomic.Uint32 // of the reader: one of the constants below
	over   atomic.Bool   // the kernel has reported the end of the input: reading continues until it is reached
	closed atomic.Bool
	full   atomic.Bool // there is something to write when the kernel accepts bytes again
	woken  atomic.Bool
	gone   atomic.Pointer[context.CancelFunc] // called when over is set; nil: no Receiver waits

	// The reader's.
	drained bool          // the last read returned everything that had arrived
	signal  chan struct{} // capacity 1: an event for a waiting goroutine; nil: no goroutine has waited yet

	fd int // changed by the reader with socket.mu held; negative: closed
}

// States of the reader. An event is reported once, so an event during a read must be recorded.
const (
	running  uint32 = iota
	notified        // it runs, and there was an event since it began
	waiting         // it is a goroutine that waits for the signal
	idle            // nothing reads the connection
)

// handleEvent handles an event of the socket, in the loop. ending: the peer has ended its side, or the
// connection has failed.
func (c *conn) handleEvent(writable, readable, ending bool) {
	s := c.socket
	if writable && s.polled.full.Load() {
		s.flushMore()
	}
	if ending {
		s.polled.over.Store(true)
		if end := s.polled.gone.Load(); end != nil {
			(*end)()
		}
	}
	if (readable || ending) && s.polled.wake() {
		c.turn()
	}
}

// wake notifies the reader of an event. If it returns true, there was no reader, and the caller is
// the reader from now on.
func (p *polled) wake() bool {
	for {
		was, to := p.state.Load(), running
		switch was {
		case notified:
			return false
		case running:
			to = notified
		}
		if p.state.CompareAndSwap(was, to) {
			if was == waiting {
				p.signal <- struct{}{}
			}
			return was == idle
		}
	}
}

const (
	quickMost  = 4 << 10 // bytes that a loop reads of a connection in one turn
	quickReads = 4       // reads in one turn
)

// errIdle is returned by readFrames if nothing of the next frame has arrived.
var errIdle = errors.New("the connection is idle")

// turn is the turn of an idle connection in an event loop.
func (c *conn) turn() {
	c.busy.Store(true)
	c.inLoop = true
	err := c.takeTurn()
	if err == errIdle {
		return // another goroutine may read by now
	}
	c.inLoop = false
	go c.run(err)
}

// takeTurn reads in an event loop. It returns errIdle if the connection is idle again, and nil if a
// goroutine must continue.
func (c *conn) takeTurn() error {
	for reads := 0; ; {
		n, err := c.reader.in.receive()
		switch {
		case errors.Is(err, again{}):
			if c.becomeIdle() {
				return errIdle
			}
			continue
		case n == 0:
			return c.wakeLater(err)
		}
		c.reader.in.have(n)
		if reads++; reads > quickReads || !c.reader.quick() {
			return nil
		}
		if err := c.reader.readFrames(); err != errIdle {
			return err
		}
	}
}

// read reads what has arrived into *into, which it takes from the pool. If there is nothing, the
// error is again{}, and *into is nil. A wake is reported like an expired deadline.
func (p *polled) read(into **buffer) (int, error) {
	switch {
	case p.closed.Load():
		return 0, net.ErrClosed
	case p.woken.Swap(false):
		return 0, os.ErrDeadlineExceeded
	case p.drained && !p.over.Load():
		giveBack(into)
		return 0, again{}
	}
	if *into == nil {
		*into = buffers.Get().(*buffer)
	}
	n, none, err := readOnce(uintptr(p.fd), (*into)[:]) //nolint:gosec // it is not negative
	switch {
	case none:
		giveBack(into)
		return 0, again{}
	case n == 0 && err == nil:
		return 0, io.EOF
	}
	p.drained = n < len(*into)
	return n, err
}

// quick reports whether an event loop may process everything that arrived: complete frames, and in
// DATA frames complete messages that are quick.
func (fr *frameReader) quick() bool {
	b := fr.in.buf[fr.in.r:fr.in.w]
	if len(b) > quickMost {
		return false
	}
	for len(b) > 0 {
		if len(b) < frameHead {
			return false
		}
		n := frameHead + (int(b[0])<<16 | int(b[1])<<8 | int(b[2]))
		if len(b) < n || !fr.quickFrame(b[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

func (fr *frameReader) quickFrame(b []byte) bool {
	switch xhttp2.FrameType(b[3]) {
	case xhttp2.FrameWindowUpdate, xhttp2.FramePing:
		return true
	case xhttp2.FrameData:
		st := fr.find(binary.BigEndian.Uint32(b[5:frameHead]))
		if st == nil || b[4] != 0 || st.message.begun() {
			return false
		}
		q, ok := st.receiver.(InlineReceiver)
		return ok && inlineMessages(q, b[frameHead:])
	}
	return false
}

func inlineMessages(q InlineReceiver, b []byte) bool {
	for len(b) > 0 {
		if len(b) < prefixLen {
			return false
		}
		n := prefixLen + int(binary.BigEndian.Uint32(b[1:prefixLen]))
		if len(b) < n || !q.IsInline(b[prefixLen:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

// becomeIdle makes the connection idle. It returns false if there is more to read.
func (c *conn) becomeIdle() bool {
	loop := c.inLoop
	c.inLoop = false
	c.busy.Store(false)
	if c.socket.polled.stopReading(idle) {
		return true
	}
	c.inLoop = loop
	c.busy.Store(true)
	return false
}

// stopReading ends reading. It returns false if there was an event, and the caller must read again.
func (p *polled) stopReading(to uint32) bool {
	p.drained = false
	if p.state.CompareAndSwap(running, to) {
		return true
	}
	p.state.Store(running)
	return false
}

// wakeLater leaves a wake to the goroutine.
func (c *conn) wakeLater(err error) error {
	if !isWake(err) {
		return err
	}
	c.socket.polled.woken.Store(true)
	return nil
}

// await is read, and waits for bytes.
func (p *polled) await(into **buffer) (int, error) {
	for {
		n, err := p.read(into)
		if n > 0 || !errors.Is(err, again{}) {
			return n, err
		}
		p.pause()
	}
}

// pause waits for an event.
func (p *polled) pause() {
	if p.signal == nil {
		p.signal = make(chan struct{}, 1)
	}
	if p.stopReading(waiting) {
		<-p.signal
	}
}

// RequestContext returns a context for a Receiver that waits, which keeps its connection from being read.
// The context ends with the server, and, if event loops are in use, when the peer closes the
// connection. It must be canceled before Receive returns.
func (st *Stream) RequestContext() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(st.Context())
	p := st.conn.socket.polled
	if p == nil {
		return ctx, cancel
	}
	p.gone.Store(&cancel)
	if p.over.Load() {
		cancel()
	}
	return ctx, func() { p.gone.Store(nil); cancel() }
}
