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

	// Of the connection's goroutine.
	receiver            Receiver // nil: what arrives is dropped
	credit              int      // bytes that the peer may still send
	unacknowledgedBytes int      // bytes read, for which no window update was sent
	expect              int64    // bytes of DATA that the peer announced and has not sent; -1: it announced no length
	message             message
	kept                int // bytes of messages that the Receiver keeps

	// Guarded by conn.mu.
	window       int
	begun        bool        // the first header block was sent
	ending       bool        // the stream ends after its queue
	queued       bool        // in output.ready
	gone         bool        // no longer in conn.streams
	remoteClosed bool        // the peer has ended its side
	trailers     []byte      // header block to end with
	queue        []outgoing  // messages that are not sent; its users bound it
	room         [1]outgoing // queue begins in it, and is seldom longer
	head         []byte      // header block to begin with; nil: responseHead
	expires      time.Time   // zero: never
	messageBy    int64       // end of the time for a message that is not complete, in Unix nanoseconds; 0: there is none
	held         int         // bytes of unfinished messages, which count for the connection
	firstBy      int64       // end of the time for the first message, in Unix nanoseconds; 0: the stream has a message, or its peer is authenticated

	path          string // read-only
	authorization string // while the Handler runs
}

// outgoing is a message, or plain text.
type outgoing struct {
	parts  [][]byte
	prefix [prefixLen]byte
	left   int // bytes to send, with the prefix
	part   int // index of the next part; -1: the prefix
	at     int // offset in that part
}

const prefixLen = 5 // of a message: a compression flag, and its length

// ErrEnded is returned by Send after the end of a stream.
var ErrEnded = errors.New("the stream has ended")

// queueGrows is how many messages a queue grows by: a new service has several responses.
const queueGrows = 3

// Send sends a message that consists of parts, which must not change any more. It does not block:
// what the peer does not accept yet is queued. It may be called from any goroutine. After the
// Receiver has ended it does nothing.
func (st *Stream) Send(parts [][]byte) error {
	_, err := st.SendAll([][][]byte{parts})
	return err
}

// SendAll is Send for several messages, which go in one write. If it returns kept false, the caller
// may reuse the parts, and lists of them.
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
	case c.output.canSendNow(st, n):
		c.output.sendNow(st, messages, n)
		return false, nil
	}
	for _, parts := range messages {
		st.push(parts)
	}
	c.output.queue(st)
	c.output.pump()
	return len(st.queue) > 0, nil
}

// framedSize returns the size of a message with its prefix.
func framedSize(parts [][]byte) int {
	n := prefixLen
	for _, p := range parts {
		n += len(p)
	}
	return n
}

// appendPrefix appends the prefix of a message of n bytes.
func appendPrefix(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(append(b, 0), uint32(n)) //nolint:gosec // messages have less than 4 GB
}

// push appends a message to the queue. conn.mu is held.
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

// Finish ends the stream, with err as its status, after all that was sent. It may be called from
// any goroutine. On a stream that has ended it does nothing.
func (st *Stream) Finish(err error) {
	c := st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queueEnd(st, statusOf(err))
}

// Go runs f in a goroutine. Stop waits for it, so f must end with the stream or with Context.
func (st *Stream) Go(f func()) { st.conn.server.running.Go(f) }

// Pending returns the number of messages that the peer or the kernel has not taken.
func (st *Stream) Pending() int {
	st.conn.mu.Lock()
	defer st.conn.mu.Unlock()
	return len(st.queue)
}

// Context ends with the server. Receiver.End reports the end of the stream.
func (st *Stream) Context() context.Context { return st.conn.server.ctx }

// Path returns the method: "/package.Service/Method".
func (st *Stream) Path() string { return st.path }

// Peer returns the peer's address.
func (st *Stream) Peer() string { return st.conn.socket.RemoteAddr().String() }

// Authorization returns the request's header of that name. It is available while the Handler runs,
// so that streams do not keep it.
func (st *Stream) Authorization() string { return st.authorization }

// PeerCertificates returns the peer's verified chain in the order in which it was sent, the peer's
// own first; nil without TLS.
func (st *Stream) PeerCertificates() []*x509.Certificate {
	if st.conn.tls == nil {
		return nil
	}
	return st.conn.tls.ConnectionState().PeerCertificates
}

// end calls the Receiver's End, once.
func (st *Stream) end() {
	st.message.release()
	st.conn.mu.Lock()
	st.conn.hold(st, 0)
	st.conn.mu.Unlock()
	if r := st.receiver; r != nil {
		st.receiver = nil
		r.End()
	}
}

// find returns an open stream; nil: there is none.
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

// drop removes a stream, and what it had to send.
func (c *conn) drop(st *Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(st)
}

// remove removes a stream. conn.mu is held.
func (c *conn) remove(st *Stream) {
	if st.gone {
		return
	}
	c.hold(st, 0)
	st.gone, st.queue, st.trailers = true, nil, nil
	c.streams = slices.DeleteFunc(c.streams, func(x *Stream) bool { return x == st })
	if len(c.streams) > 0 {
		return
	}
	c.firstRequest.becameIdle()
	if c.lifetime.leaving == sentLastGoAway {
		c.wake()
	}
}

// finish ends a stream with a status, after what was queued.
func (c *conn) finish(st *Stream, s *Status) {
	c.mu.Lock()
	c.queueEnd(st, s)
	c.mu.Unlock()
	st.end()
}

// queueEnd queues the end of a stream. conn.mu is held.
func (c *conn) queueEnd(st *Stream, s *Status) {
	if st.ending || st.gone {
		return
	}
	st.ending, st.trailers, st.expires, st.messageBy = true, trailers(s), time.Time{}, 0
	c.output.queue(st)
	c.output.pump()
}

// remoteEnded processes the end of the peer's side, if it has no error.
func (c *conn) remoteEnded(st *Stream) {
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
		c.output.control = appendReset(c.output.control, st.id, code)
		c.output.pump()
	}
	c.mu.Unlock()
	st.end()
}

// endAll ends all streams, with the connection.
func (c *conn) endAll() {
	c.mu.Lock()
	all := c.streams
	for _, st := range all {
		c.hold(st, 0)
		st.gone, st.queue = true, nil
	}
	c.streams, c.output.ready = nil, nil
	c.mu.Unlock()
	for _, st := range all {
		st.end()
	}
}

// expire sets the deadline of a stream. conn.mu is held.
func (c *conn) expire(st *Stream, at time.Time) {
	st.expires = at
	c.noteSoonest(st)
}

// noteSoonest records a stream's deadline for the lifetime goroutine. conn.mu is held.
func (c *conn) noteSoonest(st *Stream) {
	if at, soonest := st.endBy(), c.soonest.Load(); at != 0 && (soonest == 0 || at < soonest) {
		c.soonest.Store(at)
	}
}

// endBy returns when the stream ends, or the time for its message does, in Unix nanoseconds; 0: never. conn.mu is held.
func (st *Stream) endBy() int64 {
	switch {
	case st.expires.IsZero():
		return st.messageBy
	case st.messageBy == 0:
		return st.expires.UnixNano()
	}
	return min(st.messageBy, st.expires.UnixNano())
}

// anyExpired reports whether the time of a stream is over. It records the earliest deadline that is left: messages are complete
// by now.
func (c *conn) anyExpired(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.soonest.Store(0)
	for _, st := range c.streams {
		c.noteSoonest(st)
	}
	at := c.soonest.Load()
	return at != 0 && now.UnixNano() >= at
}

// expired returns the streams whose deadline is over, and records the deadlines of the others for
// the lifetime goroutine.
func (c *conn) expired(now time.Time) (out []*Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.soonest.Store(0)
	for _, st := range c.streams {
		if at := st.endBy(); at != 0 && now.UnixNano() >= at {
			out = append(out, st)
		} else {
			c.noteSoonest(st)
		}
	}
	return out
}
