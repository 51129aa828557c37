package http2

import (
	"encoding/binary"
	"errors"

	xhttp2 "golang.org/x/net/http2"
)

// A connection at rest has no goroutine and no buffer: a loop waits for it, and takes what comes where that is little
// and can be taken at once, which is nearly all that a proxy sends. For all else, and for a frame that is
// not whole, it has a goroutine until it is at rest again.

// Quick is a Receiver of which some messages can be taken by a loop that has other connections, too.
type Quick interface {
	Receiver
	// Quick tells whether Receive, and Gathered after it, would take a message without waiting for anything. It
	// is called in the connection's goroutine, before Receive and perhaps more than once.
	Quick(message []byte) bool
}

const (
	quickMost  = 4 << 10 // bytes that a loop takes of a connection at a time
	quickReads = 4       // and how many times, before another has its turn
)

// errRest is why reading frames ends where nothing of the next one has come.
var errRest = errors.New("the connection is at rest")

// turn is a loop's, of a connection that was at rest.
func (c *conn) turn() {
	c.busy.Store(true)
	c.inLoop = true
	err := c.takeTurn()
	if err == errRest {
		return // others may be at it by now
	}
	c.inLoop = false
	go c.carryOn(err)
}

// takeTurn takes what is for a loop. It gives errRest where the connection is at rest again, and nil where a
// goroutine is to go on.
func (c *conn) takeTurn() error {
	for reads := 0; ; {
		n, err := c.in.receive()
		switch {
		case errors.Is(err, again{}):
			if c.rest() {
				return errRest
			}
			continue
		case n == 0:
			return c.nudgeAgain(err)
		}
		c.in.have(n)
		if reads++; reads > quickReads || !c.quick() {
			return nil
		}
		if err := c.readFrames(); err != errRest {
			return err
		}
	}
}

// nudgeAgain leaves a nudge to the goroutine.
func (c *conn) nudgeAgain(err error) error {
	if !isWake(err) {
		return err
	}
	c.socket.polled.nudged.Store(true)
	return nil
}

// rest leaves the connection to nobody; false: there is more to read.
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

// carryOn is a goroutine: it reads until the connection is at rest, or ends.
func (c *conn) carryOn(err error) {
	if err == nil {
		err = c.readFrames()
	}
	for err == errRest {
		if c.rest() {
			return
		}
		err = c.readFrames()
	}
	c.depart(err)
}

// quick tells whether all that came is for a loop: whole frames, of DATA whole messages that are quick.
func (c *conn) quick() bool {
	b := c.in.buf[c.in.r:c.in.w]
	if len(b) > quickMost {
		return false
	}
	for len(b) > 0 {
		if len(b) < frameHead {
			return false
		}
		n := frameHead + (int(b[0])<<16 | int(b[1])<<8 | int(b[2]))
		if len(b) < n || !c.quickFrame(b[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}

func (c *conn) quickFrame(b []byte) bool {
	switch xhttp2.FrameType(b[3]) {
	case xhttp2.FrameWindowUpdate, xhttp2.FramePing:
		return true
	case xhttp2.FrameData:
		st := c.find(binary.BigEndian.Uint32(b[5:frameHead]))
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
