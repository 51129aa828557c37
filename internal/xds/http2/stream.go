package http2

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	xhttp2 "golang.org/x/net/http2"
)

// Stream is one call of a method.
type Stream struct {
	conn *conn
	id   uint32

	// The connection's goroutine's.
	receiver            Receiver // nil: what comes is dropped
	credit              int      // bytes that the peer may still send
	unacknowledgedBytes int      // bytes that were taken and not credited again
	expect              int64    // bytes of DATA that the peer has announced and not sent; -1: it has not announced them
	message             message
	kept                int // bytes of messages that the Receiver keeps

	// Guarded by conn.mu.
	window       int
	begun        bool        // the first header block was sent
	ending       bool        // the queue's end is the stream's
	queued       bool        // in conn.ready
	gone         bool        // not in conn.streams any more
	remoteClosed bool        // the peer has ended its side
	trailers     []byte      // header block to end with
	queue        []outgoing  // messages that are not sent
	room         [1]outgoing // for the queue, which is seldom longer
	head         []byte      // header block to begin with; nil: the usual one
	expires      time.Time   // zero: never

	path          string // read-only
	authorization string // while the Handler runs
}

// outgoing is a message, or plain text.
type outgoing struct {
	parts  [][]byte
	prefix [prefixLen]byte
	left   int // bytes to send, with the prefix
	part   int // of parts, the next one; -1: the prefix
	at     int // in that
}

const prefixLen = 5 // of a message: whether it is compressed, and its length

// ErrEnded is what Send returns after the end of a stream.
var ErrEnded = errors.New("the stream has ended")

// queueGrows is by how much a queue gets longer at once: a new service has several responses.
const queueGrows = 3

// Send sends a message that is made of parts, which must not change any more. It does not
// block: what the peer does not take yet is queued. It may be called from any goroutine,
// until the Receiver has ended, and then does nothing.
func (st *Stream) Send(parts [][]byte) error {
	_, err := st.SendAll([][][]byte{parts})
	return err
}

// SendAll is Send for messages one after the other: they go in one write. Where nothing of them is kept when it returns,
// parts, and lists of them, may be used again.
func (st *Stream) SendAll(messages [][][]byte) (kept bool, err error) {
	n := 0
	for _, parts := range messages {
		n += framedSize(parts)
	}
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case st.gone || st.ending:
		return false, ErrEnded
	case c.goesNow(st, n):
		c.sendNow(st, messages, n)
		return false, nil
	}
	for _, parts := range messages {
		st.push(parts)
	}
	c.queue(st)
	c.pump()
	return len(st.queue) > 0, nil
}

// framedSize is a message's size with its prefix.
func framedSize(parts [][]byte) int {
	n := prefixLen
	for _, p := range parts {
		n += len(p)
	}
	return n
}

// appendPrefix appends what stands before a message of n bytes.
func appendPrefix(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0), uint32(n)) //nolint:gosec // messages have less than 4 GB
}

// push puts a message at the end of the queue. conn.mu is held.
func (st *Stream) push(parts [][]byte) {
	m := outgoing{parts: parts, part: -1, left: framedSize(parts)}
	appendPrefix(m.prefix[:0], m.left-prefixLen)
	if st.queue == nil {
		st.queue = st.room[:0]
	}
	if len(st.queue) == len(st.room) {
		st.queue = slices.Grow(st.queue, queueGrows)
	}
	st.queue = append(st.queue, m)
}

// Finish ends the stream, with err as its status, after all that was sent. It may be called
// from any goroutine; on a stream that has ended it does nothing.
func (st *Stream) Finish(err error) {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastOf(st, statusOf(err))
}

// Go runs f in a goroutine of its own. Stop waits for it, so it must end with the stream or
// with Context.
func (st *Stream) Go(f func()) { st.conn.server.running.Go(f) }

// Pending is the number of messages that the peer or the kernel has yet to take.
func (st *Stream) Pending() int {
	st.conn.mu.Lock()
	defer st.conn.mu.Unlock()
	return len(st.queue)
}

// Context ends with the server. The end of the stream is told to its Receiver.
func (st *Stream) Context() context.Context { return st.conn.server.ctx }

// Path is the method: "/package.Service/Method".
func (st *Stream) Path() string { return st.path }

// Peer is the peer's address.
func (st *Stream) Peer() string { return st.conn.socket.RemoteAddr().String() }

// Authorization is the request's header of that name. It is there while the Handler runs,
// so that streams do not keep it.
func (st *Stream) Authorization() string { return st.authorization }

// PeerCertificates is the peer's verified chain as it was sent, its own first; nil without TLS.
func (st *Stream) PeerCertificates() []*x509.Certificate {
	if st.conn.tls == nil {
		return nil
	}
	return st.conn.tls.ConnectionState().PeerCertificates
}

// end tells the Receiver, once.
func (st *Stream) end() {
	st.message.release()
	if r := st.receiver; r != nil {
		st.receiver = nil
		r.End()
	}
}

// find finds an open stream; nil: there is none.
func (c *conn) find(id uint32) *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lookup(id)
}

func (c *conn) lookup(id uint32) *Stream {
	for _, st := range c.streams {
		if st.id == id {
			return st
		}
	}
	return nil
}

// drop takes a stream out, with what it had to send.
func (c *conn) drop(st *Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(st)
}

// remove takes a stream out. conn.mu is held.
func (c *conn) remove(st *Stream) {
	if st.gone {
		return
	}
	st.gone, st.queue, st.trailers = true, nil, nil
	c.streams = slices.DeleteFunc(c.streams, func(x *Stream) bool { return x == st })
	if c.leaving == told && len(c.streams) == 0 {
		c.wake()
	}
}

// finish ends a stream with a status: what was queued is sent first.
func (c *conn) finish(st *Stream, s *Status) {
	c.mu.Lock()
	c.lastOf(st, s)
	c.mu.Unlock()
	st.end()
}

// lastOf queues a stream's end. conn.mu is held.
func (c *conn) lastOf(st *Stream, s *Status) {
	if st.ending || st.gone {
		return
	}
	st.ending, st.trailers, st.expires = true, trailers(s), time.Time{}
	c.queue(st)
	c.pump()
}

// heardAll tells the Receiver that the peer has ended its side, in order.
func (c *conn) heardAll(st *Stream) {
	if f, ok := st.receiver.(Finisher); ok {
		f.RemoteClosed()
		return
	}
	c.finish(st, &Status{})
}

// resetStream ends a stream at once.
func (c *conn) resetStream(st *Stream, code xhttp2.ErrCode) {
	c.mu.Lock()
	if !st.gone {
		c.remove(st)
		c.control = appendReset(c.control, st.id, code)
		c.pump()
	}
	c.mu.Unlock()
	st.end()
}

// endAll ends all streams, with the connection.
func (c *conn) endAll() {
	c.mu.Lock()
	all := c.streams
	for _, st := range all {
		st.gone, st.queue = true, nil
	}
	c.streams, c.ready = nil, nil
	c.mu.Unlock()
	for _, st := range all {
		st.end()
	}
}

// expire notes when a stream's time is over. conn.mu is held.
func (c *conn) expire(st *Stream, at time.Time) {
	st.expires = at
	c.noteSoonest(st)
}

// noteSoonest has the keeper know of a stream's time. conn.mu is held.
func (c *conn) noteSoonest(st *Stream) {
	if st.expires.IsZero() {
		return
	}
	if at, soonest := st.expires.UnixNano(), c.soonest.Load(); soonest == 0 || at < soonest {
		c.soonest.Store(at)
	}
}

// expired are the streams whose time is over. The keeper is to look for that of the others from now on.
func (c *conn) expired(now time.Time) (out []*Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.soonest.Store(0)
	for _, st := range c.streams {
		if !st.expires.IsZero() && !now.Before(st.expires) {
			out = append(out, st)
		} else {
			c.noteSoonest(st)
		}
	}
	return out
}
