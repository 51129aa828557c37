package http2

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"os"
	"sync"

	xhttp2 "golang.org/x/net/http2"
)

// frameReader reads frames and processes them. It belongs to the connection's reader.
type frameReader struct {
	*conn
	in     input
	framer *xhttp2.Framer

	lastID              uint32  // of the peer's newest stream
	credit              int     // bytes of DATA that the peer may still send
	unacknowledgedBytes int     // bytes read, for which no window update was sent
	batch               *Stream // the last one that received a message since the last wait; nil: none did
	unauthenticated     bool    // the peer has not authenticated: stricter limits apply
}

// readFrames processes frames until the connection is idle or ends, and returns why.
func (fr *frameReader) readFrames() error {
	for {
		fr.in.whole, fr.in.quota = true, maxBlock
		// Waiting here and not below the Framer keeps the stack of an idle connection under a
		// quarter of 8 KB, so that a garbage collection shrinks it to 4 KB.
		if err := fr.in.ready(); err != nil {
			return err
		}
		fh, err := fr.framer.ReadFrameHeader()
		if err == nil {
			if fh.Type == xhttp2.FrameData {
				err = fr.data(fh)
			} else {
				err = fr.frame(fh)
			}
		}
		var se xhttp2.StreamError
		switch {
		case err == nil:
		case errors.As(err, &se):
			if err := fr.streamError(se); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// input is what a connection receives, decrypted. It belongs to the connection's reader.
type input struct {
	conn *conn
	tls  *tls.Conn // nil: plain text
	buf  *buffer   // nil while it waits for more
	r, w int

	quota int   // bytes that a header block may still take
	whole bool  // nothing of the next frame was read
	data  bool  // it is in a DATA frame
	err   error // why nothing more comes
}

// ready waits until there are bytes.
func (in *input) ready() error {
	if in.r < in.w {
		return nil
	}
	return in.fill()
}

// fill waits for bytes, after all were taken. If an event loop waits for the connection, it may
// return errIdle.
func (in *input) fill() (err error) {
	defer func() { in.err = err }()
	in.conn.reader.endBatch()
	in.conn.output.cork(false)
	in.conn.beforeWait(in)
	if in.conn.inLoop {
		return errIdle
	}
	in.conn.busy.Store(false)
	defer in.conn.busy.Store(true)
	for {
		n, err := in.receive()
		if n > 0 {
			in.have(n)
			return nil
		}
		if err := in.without(err); err != nil {
			return err
		}
	}
}

// have records that n bytes were received.
func (in *input) have(n int) {
	in.r, in.w, in.err = 0, n, nil
	in.conn.output.cork(true)
	if !in.conn.active.Load() {
		in.conn.active.Store(true)
	}
}

// without handles that nothing was received. It returns nil if receive should be called again.
func (in *input) without(err error) error {
	switch {
	case isWake(err):
		return in.conn.handleWake()
	case !errors.Is(err, again{}):
		return err
	case in.whole:
		return errIdle
	}
	in.conn.socket.polled.pause()
	return nil
}

func isWake(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// receive reads what is there, or waits for it, like socket.get.
func (in *input) receive() (int, error) {
	s := in.conn.socket
	if in.tls == nil {
		return s.get(&in.buf)
	}
	for {
		if in.buf == nil {
			in.buf = buffers.Get().(*buffer)
		}
		n, err := in.tls.Read(in.buf[:])
		if n > 0 {
			return n, nil // the error is returned again by the next read
		}
		if !errors.Is(err, again{}) {
			return 0, err
		}
		giveBack(&in.buf)
		if err := s.receive(); err != nil {
			return 0, err
		}
	}
}

// take returns up to n bytes, at least one, in place: they are valid until the next call.
func (in *input) take(n int) ([]byte, error) {
	if err := in.ready(); err != nil {
		return nil, err
	}
	n = min(n, in.w-in.r)
	in.r += n
	in.whole = false
	return in.buf[in.r-n : in.r], nil
}

// Read implements io.Reader, for the Framer.
func (in *input) Read(p []byte) (int, error) {
	b, err := in.take(len(p))
	if in.quota -= len(b); err == nil && in.quota < 0 {
		return 0, errFlood
	}
	return copy(p, b), err
}

// release returns the buffers, at the end.
func (in *input) release() {
	giveBack(&in.buf)
	giveBack(&in.conn.socket.cipher)
	in.r, in.w = 0, 0
}

// data processes a DATA frame, in place.
func (fr *frameReader) data(fh xhttp2.FrameHeader) error {
	n := int(fh.Length)
	if fh.StreamID == 0 || fh.StreamID > fr.lastID {
		return protocolError()
	}
	if fr.credit -= n; fr.credit < 0 {
		return xhttp2.ConnectionError(xhttp2.ErrCodeFlowControl)
	}
	if n == 0 && !fh.Flags.Has(xhttp2.FlagDataEndStream) {
		if err := fr.spendBudget(); err != nil {
			return err
		}
	}
	st := fr.find(fh.StreamID)
	wrong := fr.checkData(st, fh)
	if err := fr.payload(st, fh, wrong == nil); err != nil {
		return err
	}
	fr.returnCredit(st, n)
	switch {
	case wrong != nil:
		return wrong
	case fh.Flags.Has(xhttp2.FlagDataEndStream):
		if st.expect > 0 {
			return xhttp2.StreamError{StreamID: st.id, Code: xhttp2.ErrCodeProtocol}
		}
		fr.halfClose(st)
	}
	return nil
}

// checkData returns what is wrong with a DATA frame, before its payload is read.
func (fr *frameReader) checkData(st *Stream, fh xhttp2.FrameHeader) error {
	if st == nil || st.remoteClosed {
		return xhttp2.StreamError{StreamID: fh.StreamID, Code: xhttp2.ErrCodeStreamClosed}
	}
	if st.credit -= int(fh.Length); st.credit < 0 {
		return xhttp2.StreamError{StreamID: st.id, Code: xhttp2.ErrCodeFlowControl}
	}
	return nil
}

// payload reads the payload of a DATA frame, and drops it unless it is wanted.
func (fr *frameReader) payload(st *Stream, fh xhttp2.FrameHeader, wanted bool) error {
	n, padding := int(fh.Length), 0
	fr.in.data = true
	defer func() { fr.in.data = false }()
	if fh.Flags.Has(xhttp2.FlagDataPadded) {
		if n == 0 {
			return protocolError()
		}
		b, err := fr.in.take(1)
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
			return fr.drain(n, xhttp2.StreamError{StreamID: st.id, Code: xhttp2.ErrCodeProtocol})
		}
	}
	for left := n - padding; left > 0; {
		b, err := fr.in.take(left)
		if err != nil {
			return err
		}
		left -= len(b)
		if wanted && st.receiver != nil {
			fr.messages(st, b)
		}
	}
	return fr.drain(padding, nil)
}

// message is a message that is not complete yet.
type message struct {
	head  [prefixLen]byte
	timed bool    // Stream.messageBy is set
	n     int     // bytes of head that were received
	body  *[]byte // from bodies; nil: nothing of it was received
}

// bodies are buffers for messages that arrive in pieces: proxies that connect again list everything
// that they have.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// keepBody is the largest buffer that is reused.
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

// messages passes the messages that are complete with b to the Receiver. Messages that are entirely
// in b are not copied.
func (fr *frameReader) messages(st *Stream, b []byte) {
	m := &st.message
	for st.receiver != nil {
		if m.n < prefixLen {
			k := copy(m.head[m.n:], b)
			if m.n += k; m.n < prefixLen {
				fr.awaitRest(st)
				return
			}
			b = b[k:]
			if s := fr.checkPrefix(m, len(b)); s != nil {
				fr.finish(st, s)
				return
			}
		}
		var whole []byte
		if whole, b = m.more(b); whole == nil {
			fr.awaitRest(st)
			return
		}
		m.n = 0
		fr.firstRequest.received(st)
		fr.beginBatch(st)
		if err := st.receiver.Receive(whole); err != nil {
			fr.endBatch()
			fr.finish(st, statusOf(err))
			return
		}
		m.release()
		fr.completed(st)
	}
}

// awaitRest bounds what was received of a message that is not complete, and the time for the rest of it.
func (fr *frameReader) awaitRest(st *Stream) {
	if st.message.begun() {
		if s := fr.incomplete(st); s != nil {
			fr.finish(st, s)
		}
	}
}

// more returns a message once it is complete, and the bytes after it. A message takes memory when
// its bytes arrive, not when its length does.
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

// checkPrefix checks the prefix of a message, of which have bytes were received.
func (fr *frameReader) checkPrefix(m *message, have int) *Status {
	switch {
	case m.head[0] == 1:
		return statusf(Internal, "a message is compressed, but the request has no grpc-encoding")
	case m.head[0] != 0:
		return statusf(Internal, "a message begins with %d: gRPC allows 0 or 1", m.head[0])
	case m.size() > fr.server.opts.MaxMessage:
		return statusf(ResourceExhausted, "a message has %d bytes: the limit is %d", m.size(), fr.server.opts.MaxMessage)
	case have < m.size():
		return fr.checkUnfinished()
	}
	return nil
}

// beginBatch records that a stream receives a message. Messages of one stream that arrive together
// are a batch. A message of another stream ends it.
func (fr *frameReader) beginBatch(st *Stream) {
	if fr.batch == st {
		return
	}
	fr.endBatch()
	fr.batch = st
}

// endBatch ends the batch, if there is one: its Receiver answers. It is called before the connection
// waits for bytes.
func (fr *frameReader) endBatch() {
	st := fr.batch
	if st == nil {
		return
	}
	fr.batch = nil
	if r, ok := st.receiver.(BatchReceiver); ok {
		if err := r.EndBatch(); err != nil {
			fr.finish(st, statusOf(err))
		}
	}
}

// returnCredit sends window updates for windows of which half is used.
func (fr *frameReader) returnCredit(st *Stream, n int) {
	fr.unacknowledgedBytes += n
	if st != nil {
		st.unacknowledgedBytes += n
	}
	mine, its := fr.unacknowledgedBytes >= connWindow/2, st != nil && st.unacknowledgedBytes >= streamWindow/2 && !st.remoteClosed
	if !mine && !its {
		return
	}
	fr.mu.Lock()
	defer fr.mu.Unlock()
	if mine {
		fr.output.control = appendWindowUpdate(fr.output.control, 0, fr.unacknowledgedBytes)
		fr.credit, fr.unacknowledgedBytes = fr.credit+fr.unacknowledgedBytes, 0
	}
	if its && !st.gone && st.receiver != nil {
		fr.output.control = appendWindowUpdate(fr.output.control, st.id, st.unacknowledgedBytes)
		st.credit, st.unacknowledgedBytes = st.credit+st.unacknowledgedBytes, 0
	}
	fr.output.pump()
}

// drain reads and drops n bytes. Then it returns err.
func (fr *frameReader) drain(n int, err error) error {
	for n > 0 {
		b, err := fr.in.take(n)
		if err != nil {
			return err
		}
		n -= len(b)
	}
	return err
}

// halfClose processes the end of the peer's side.
func (fr *frameReader) halfClose(st *Stream) {
	fr.endBatch()
	fr.mu.Lock()
	st.remoteClosed, st.firstBy, st.messageBy = true, 0, 0
	if fr.output.sent(st) {
		fr.remove(st)
	}
	fr.mu.Unlock()
	switch {
	case st.receiver == nil:
	case st.message.begun():
		fr.finish(st, statusf(Internal, "the stream ended within a message"))
	default:
		fr.remoteEnded(st)
	}
}
