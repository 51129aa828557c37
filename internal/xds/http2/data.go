package http2

import (
	"encoding/binary"
	"sync"

	xhttp2 "golang.org/x/net/http2"
)

// data takes a DATA frame, in place.
func (c *conn) data(fh xhttp2.FrameHeader) error {
	n := int(fh.Length)
	if fh.StreamID == 0 || fh.StreamID > c.lastID {
		return protocolError()
	}
	if c.credit -= n; c.credit < 0 {
		return xhttp2.ConnectionError(xhttp2.ErrCodeFlowControl)
	}
	if n == 0 && !fh.Flags.Has(xhttp2.FlagDataEndStream) {
		if err := c.bother(); err != nil {
			return err
		}
	}
	st := c.find(fh.StreamID)
	wrong := c.checkData(st, fh)
	if err := c.payload(st, fh, wrong == nil); err != nil {
		return err
	}
	c.takenOf(st, n)
	switch {
	case wrong != nil:
		return wrong
	case fh.Flags.Has(xhttp2.FlagDataEndStream):
		if st.expect > 0 {
			return xhttp2.StreamError{StreamID: st.id, Code: xhttp2.ErrCodeProtocol}
		}
		c.halfClose(st)
	}
	return nil
}

// checkData tells what is wrong with a DATA frame before its payload is read.
func (c *conn) checkData(st *Stream, fh xhttp2.FrameHeader) error {
	if st == nil || st.remoteClosed {
		return xhttp2.StreamError{StreamID: fh.StreamID, Code: xhttp2.ErrCodeStreamClosed}
	}
	if st.credit -= int(fh.Length); st.credit < 0 {
		return xhttp2.StreamError{StreamID: st.id, Code: xhttp2.ErrCodeFlowControl}
	}
	return nil
}

// payload reads what is in a DATA frame, and drops it unless it is wanted.
func (c *conn) payload(st *Stream, fh xhttp2.FrameHeader, wanted bool) error {
	n, padding := int(fh.Length), 0
	c.in.data = true
	defer func() { c.in.data = false }()
	if fh.Flags.Has(xhttp2.FlagDataPadded) {
		if n == 0 {
			return protocolError()
		}
		b, err := c.in.take(1)
		if err != nil {
			return err
		}
		n, padding = n-1, int(b[0])
		if padding > n {
			return protocolError()
		}
	}
	if wanted && st.expect >= 0 {
		if st.expect -= int64(n - padding); st.expect < 0 {
			return c.drain(n, xhttp2.StreamError{StreamID: st.id, Code: xhttp2.ErrCodeProtocol})
		}
	}
	for left := n - padding; left > 0; {
		b, err := c.in.take(left)
		if err != nil {
			return err
		}
		left -= len(b)
		if wanted && st.receiver != nil {
			c.messages(st, b)
		}
	}
	return c.drain(padding, nil)
}

// drain reads n bytes and drops them; then it gives err.
func (c *conn) drain(n int, err error) error {
	for n > 0 {
		b, err := c.in.take(n)
		if err != nil {
			return err
		}
		n -= len(b)
	}
	return err
}

// takenOf gives windows back that are half used.
func (c *conn) takenOf(st *Stream, n int) {
	c.unacknowledgedBytes += n
	if st != nil {
		st.unacknowledgedBytes += n
	}
	mine, its := c.unacknowledgedBytes >= connWindow/2, st != nil && st.unacknowledgedBytes >= streamWindow/2 && !st.remoteClosed
	if !mine && !its {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if mine {
		c.control = appendWindowUpdate(c.control, 0, c.unacknowledgedBytes)
		c.credit, c.unacknowledgedBytes = c.credit+c.unacknowledgedBytes, 0
	}
	if its && !st.gone && st.receiver != nil {
		c.control = appendWindowUpdate(c.control, st.id, st.unacknowledgedBytes)
		st.credit, st.unacknowledgedBytes = st.credit+st.unacknowledgedBytes, 0
	}
	c.pump()
}

// halfClose takes the end of the peer's side.
func (c *conn) halfClose(st *Stream) {
	c.gather(nil)
	c.mu.Lock()
	st.remoteClosed = true
	if c.sent(st) {
		c.remove(st)
	}
	c.mu.Unlock()
	switch {
	case st.receiver == nil:
	case st.message.begun():
		c.finish(st, statusf(Internal, "the stream ended within a message"))
	default:
		c.heardAll(st)
	}
}

// message is one that is not whole yet.
type message struct {
	head [prefixLen]byte
	n    int     // bytes of head that are there
	body *[]byte // from bodies; nil: none is there
}

// bodies are buffers for messages that come in pieces: those of proxies that connect
// again list all that they hold.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// keepBody is the largest buffer that is used again.
const keepBody = 1 << 20

func (m *message) begun() bool { return m.n > 0 }

func (m *message) size() int { return int(binary.BigEndian.Uint32(m.head[1:])) }

func (m *message) release() {
	m.n = 0
	if m.body == nil {
		return
	}
	if cap(*m.body) <= keepBody {
		*m.body = (*m.body)[:0]
		bodies.Put(m.body)
	}
	m.body = nil
}

// messages gives the Receiver the messages that are whole with b. Those that b holds
// wholly are not copied.
func (c *conn) messages(st *Stream, b []byte) {
	m := &st.message
	for st.receiver != nil {
		if m.n < prefixLen {
			k := copy(m.head[m.n:], b)
			if m.n += k; m.n < prefixLen {
				return
			}
			b = b[k:]
			if s := c.checkPrefix(m, len(b)); s != nil {
				c.finish(st, s)
				return
			}
		}
		var whole []byte
		if whole, b = m.more(b); whole == nil {
			return
		}
		m.n = 0
		c.gather(st)
		if err := st.receiver.Receive(whole); err != nil {
			c.gather(nil)
			c.finish(st, statusOf(err))
			return
		}
		m.release()
	}
}

// gather notes that a stream takes a message; those of another one before are all there are, for now.
func (c *conn) gather(st *Stream) {
	last := c.gathering
	if last == st {
		return
	}
	if c.gathering = st; last == nil {
		return
	}
	if g, ok := last.receiver.(Gatherer); ok {
		if err := g.Gathered(); err != nil {
			c.finish(last, statusOf(err))
		}
	}
}

// checkPrefix tells what is wrong with a message of which have bytes came with its prefix.
func (c *conn) checkPrefix(m *message, have int) *Status {
	switch {
	case m.head[0] == 1:
		return statusf(Internal, "a message is compressed, and grpc-encoding does not say how")
	case m.head[0] != 0:
		return statusf(Internal, "a message begins with %d, which gRPC does not know", m.head[0])
	case m.size() > c.server.opts.MaxMessage:
		return statusf(ResourceExhausted, "a message has %d bytes; %d is the limit", m.size(), c.server.opts.MaxMessage)
	case have < m.size():
		return c.checkUnfinished()
	}
	return nil
}

// more gives the whole message, once it is there, and what comes after it. What is
// announced takes no memory before it comes.
func (m *message) more(b []byte) (whole, rest []byte) {
	size := m.size()
	if m.body == nil {
		if len(b) >= size {
			return b[:size:size], b[size:]
		}
		if len(b) == 0 {
			return nil, nil
		}
		m.body = bodies.Get().(*[]byte)
	}
	n := min(size-len(*m.body), len(b))
	if *m.body = append(*m.body, b[:n]...); len(*m.body) < size {
		return nil, nil
	}
	return *m.body, b[n:]
}
