package http2

import (
	"sync"

	xhttp2 "golang.org/x/net/http2"
)

// queue puts a stream among those that have something to send. conn.mu is held.
func (c *conn) queue(st *Stream) {
	if !st.queued && !st.gone && (len(st.queue) > 0 || st.ending) {
		st.queued = true
		c.ready = append(c.ready, st)
	}
}

// flushed is called when the kernel has taken everything.
func (c *conn) flushed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pump()
}

// cork has what is sent wait, or go: answers to requests that came together, and the
// several responses that may follow from one, go in one write.
func (c *conn) cork(corked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.corked = corked; !corked {
		c.pump()
	}
}

// output is what is written at once.
type output [32 << 10]byte

var outputs = sync.Pool{New: func() any { return new(output) }}

// pump writes what may go, as long as the kernel takes it. conn.mu is held.
func (c *conn) pump() {
	for c.greeted && !c.corked && !c.closed.Load() && (len(c.control) > 0 || len(c.ready) > 0) && !c.socket.blocked() {
		buf := outputs.Get().(*output)
		b := c.frames(buf[:0])
		if len(b) > 0 {
			c.write(b)
		}
		outputs.Put(buf)
		if len(b) == 0 {
			return
		}
	}
}

// goesNow tells whether n bytes of a stream's messages fit in one frame, and may go before all else. conn.mu is held.
func (c *conn) goesNow(st *Stream, n int) bool {
	waits := c.corked || len(c.control)+len(c.ready)+len(st.queue) > 0
	return st.begun && !waits && n <= min(c.largest, c.window, st.window) && c.greeted && !c.closed.Load() && !c.socket.blocked()
}

// sendNow writes such messages: nearly all that is sent to a proxy at rest. conn.mu is held.
func (c *conn) sendNow(st *Stream, messages [][][]byte, n int) {
	buf := outputs.Get().(*output)
	defer outputs.Put(buf)
	c.window, st.window = c.window-n, st.window-n
	b := appendFrame(buf[:0], n, xhttp2.FrameData, 0, st.id)
	for _, parts := range messages {
		b = appendPrefix(b, framedSize(parts)-prefixLen)
		for _, p := range parts {
			b = append(b, p...)
		}
	}
	c.write(b)
}

// write writes frames. Where that fails the connection ends.
func (c *conn) write(b []byte) {
	var err error
	if c.tls != nil {
		_, err = c.tls.Write(b)
	} else {
		_, err = c.socket.Write(b)
	}
	if err != nil {
		c.cut()
	}
}

// room is what is left in a buffer after a full frame.
const room = len(output{}) - 2*frameHead - maxFrame

// frames appends frames to b, about as many as it holds.
func (c *conn) frames(b []byte) []byte {
	b = append(b, c.control...)
	c.control = c.control[:0]
	if cap(c.control) > 256 {
		c.control = nil
	}
	for n := len(c.ready); n > 0 && len(b) < room; n-- {
		st := c.ready[0]
		copy(c.ready, c.ready[1:])
		c.ready[len(c.ready)-1] = nil
		c.ready = c.ready[:len(c.ready)-1]
		before := len(b)
		b = c.framesOf(st, b)
		if len(b) > before && st.more() { // it takes its turn again
			c.ready = append(c.ready, st)
			n++
		} else {
			st.queued = false
		}
	}
	return b
}

// more tells whether a stream has something to send, be it that a window forbids it.
func (st *Stream) more() bool { return !st.gone && (len(st.queue) > 0 || st.ending && !st.ended()) }

// ended tells whether its end was sent. Then it is half closed, or gone.
func (st *Stream) ended() bool { return st.ending && len(st.queue) == 0 && st.trailers == nil }

// sent tells whether all of a stream was sent, its end too. conn.mu is held.
func (c *conn) sent(st *Stream) bool { return st.begun && st.ended() }

// framesOf appends a stream's next frames: at most one with DATA.
func (c *conn) framesOf(st *Stream, b []byte) []byte {
	if st.gone || c.sent(st) {
		return b
	}
	if !st.begun && len(st.queue) > 0 {
		b = c.headersOf(st, b, nil)
	}
	if len(st.queue) > 0 {
		b = c.dataOf(st, b)
	}
	if len(st.queue) > 0 || !st.ending {
		return b
	}
	if st.trailers != nil {
		b = c.headersOf(st, b, st.trailers)
		st.trailers = nil
	}
	switch {
	case st.remoteClosed:
		c.remove(st)
	case st.head == nil: // the rest of the request is of no use
		b = appendReset(b, st.id, xhttp2.ErrCodeNo)
		c.remove(st)
	}
	return b
}

// headersOf appends a HEADERS frame: the first, the last, or where both are one, that.
func (c *conn) headersOf(st *Stream, b, trailers []byte) []byte {
	at := len(b)
	flags := xhttp2.FlagHeadersEndHeaders
	b = appendFrame(b, 0, xhttp2.FrameHeaders, 0, st.id)
	if c.resized {
		c.resized = false
		b = append(b, tableUpdate)
	}
	switch {
	case st.begun:
	case st.head != nil:
		b = append(b, st.head...)
	default:
		b = append(b, responseHead...)
	}
	st.begun = true
	if trailers != nil {
		flags |= xhttp2.FlagHeadersEndStream
		b = append(b, trailers...)
	}
	n := len(b) - at - frameHead
	b[at], b[at+1], b[at+2], b[at+4] = byte(n>>16), byte(n>>8), byte(n), byte(flags)
	return b
}

// dataOf appends a DATA frame with as much of the next message as may go.
func (c *conn) dataOf(st *Stream, b []byte) []byte {
	m := &st.queue[0]
	n := min(m.left, c.largest, c.window, st.window)
	if n <= 0 {
		return b
	}
	c.window, st.window = c.window-n, st.window-n
	var flags xhttp2.Flags
	if n == m.left && len(st.queue) == 1 && st.ending && st.trailers == nil {
		flags = xhttp2.FlagDataEndStream
	}
	b = appendFrame(b, n, xhttp2.FrameData, flags, st.id)
	b = m.append(b, n)
	if m.left == 0 {
		*m = outgoing{}
		if st.queue = st.queue[1:]; len(st.queue) == 0 {
			st.queue = st.room[:0]
		}
	}
	return b
}

// append appends the next n bytes.
func (m *outgoing) append(b []byte, n int) []byte {
	m.left -= n
	for n > 0 {
		from := m.prefix[:]
		if m.part >= 0 {
			from = m.parts[m.part]
		}
		k := min(n, len(from)-m.at)
		b = append(b, from[m.at:m.at+k]...)
		n -= k
		if m.at += k; m.at == len(from) {
			m.part, m.at = m.part+1, 0
		}
	}
	return b
}
