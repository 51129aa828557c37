package http2

import (
	"encoding/binary"
	"errors"

	xhttp2 "golang.org/x/net/http2"
)

// An idle connection has no goroutine and no buffer. An event loop waits for it, and processes
// small messages that need no waiting, which are nearly all messages of a proxy. For everything
// else, and for an incomplete frame, the connection has a goroutine until it is idle again.

// Quick is a Receiver some of whose messages an event loop may process. The loop serves other
// connections too.
type Quick interface {
	Receiver
	// Quick reports whether Receive, and Gathered after it, process a message without waiting. It
	// is called in the connection's goroutine, before Receive and perhaps more than once.
	Quick(message []byte) bool
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
// goroutine must go on.
func (c *conn) takeTurn() error {
	for reads := 0; ; {
		n, err := c.reader.in.receive()
		switch {
		case errors.Is(err, again{}):
			if c.rest() {
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

// wakeLater leaves a wake to the goroutine.
func (c *conn) wakeLater(err error) error {
	if !isWake(err) {
		return err
	}
	c.socket.polled.woken.Store(true)
	return nil
}

// rest makes the connection idle. It returns false if there is more to read.
func (c *conn) rest() bool {
	loop := c.inLoop
	c.inLoop = false
	c.busy.Store(false)
	if c.socket.polled.leave(resting) {
		return true
	}
	c.inLoop = loop
	c.busy.Store(true)
	return false
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
		q, ok := st.receiver.(Quick)
		return ok && quickMessages(q, b[frameHead:])
	}
	return false
}

func quickMessages(q Quick, b []byte) bool {
	for len(b) > 0 {
		if len(b) < prefixLen {
			return false
		}
		n := prefixLen + int(binary.BigEndian.Uint32(b[1:prefixLen]))
		if len(b) < n || !q.Quick(b[prefixLen:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}
