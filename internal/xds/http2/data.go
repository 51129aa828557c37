package http2

import (
	"encoding/binary"
	"sync"

	xhttp2 "golang.org/x/net/http2"
)

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

// halfClose processes the end of the peer's side.
func (fr *frameReader) halfClose(st *Stream) {
	fr.gather(nil)
	fr.mu.Lock()
	st.remoteClosed = true
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

// message is a message that is not complete yet.
type message struct {
	head [prefixLen]byte
	n    int     // bytes of head that were received
	body *[]byte // from bodies; nil: nothing of it was received
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
			return
		}
		m.n = 0
		fr.gather(st)
		if err := st.receiver.Receive(whole); err != nil {
			fr.gather(nil)
			fr.finish(st, statusOf(err))
			return
		}
		m.release()
	}
}

// gather records that a stream received a message. It ends the messages of another stream that came
// before.
func (fr *frameReader) gather(st *Stream) {
	last := fr.gathering
	if last == st {
		return
	}
	if fr.gathering = st; last == nil {
		return
	}
	if g, ok := last.receiver.(Gatherer); ok {
		if err := g.Gathered(); err != nil {
			fr.finish(last, statusOf(err))
		}
	}
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
