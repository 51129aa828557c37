package http2

import (
	"encoding/binary"
	"strconv"
	"sync"

	xhttp2 "golang.org/x/net/http2"
)

// output is what a connection sends.
type output struct {
	*conn

	// Guarded by conn.mu.
	ready   []*Stream // streams that have something to send
	control []byte    // frames to send before all others; bounded by maxControl
	window  int       // bytes of DATA that the peer still accepts
	initial int       // window of a new stream
	largest int       // payload of a DATA frame
	resized bool      // the next header block must begin with a tableUpdate
	greeted bool      // settings were sent: other frames may follow
	corked  bool      // requests are being processed: what is sent waits, to go in one write
}

// sendControl sends frames before all others.
func (o *output) sendControl(appendTo func([]byte) []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.control = appendTo(o.control)
	if len(o.control) > maxControl {
		return errFlood // the peer causes answers, and does not read them
	}
	o.pump()
	return nil
}

// greet sends the frames that every connection begins with.
func (o *output) greet() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.control = appendSettings(o.control,
		xhttp2.Setting{ID: xhttp2.SettingMaxConcurrentStreams, Val: o.reader.mostStreams()},
		xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: streamWindow},
		xhttp2.Setting{ID: xhttp2.SettingMaxHeaderListSize, Val: maxHeaderList})
	o.control = appendWindowUpdate(o.control, 0, connWindow-firstWindow)
	o.greeted = true
	o.pump()
}

// queue adds a stream to ready, if it has something to send. conn.mu is held.
func (o *output) queue(st *Stream) {
	if !st.queued && !st.gone && (len(st.queue) > 0 || st.ending) {
		st.queued = true
		o.ready = append(o.ready, st)
	}
}

// flushed is called when the kernel has taken everything.
func (o *output) flushed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pump()
}

// cork delays what is sent, or sends it. Answers to requests that arrived together, and the
// responses that follow from one request, go in one write.
func (o *output) cork(corked bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.corked = corked; !corked {
		o.pump()
	}
}

// writeBuffer is the buffer of one write.
type writeBuffer [32 << 10]byte

var writeBuffers = sync.Pool{New: func() any { return new(writeBuffer) }}

// pump writes what may be sent, until the kernel takes no more. conn.mu is held.
func (o *output) pump() {
	for o.greeted && !o.corked && !o.closed.Load() && (len(o.control) > 0 || len(o.ready) > 0) && !o.socket.blocked() {
		buf := writeBuffers.Get().(*writeBuffer)
		b := o.frames(buf[:0])
		if len(b) > 0 {
			o.write(b)
		}
		writeBuffers.Put(buf)
		if len(b) == 0 {
			return
		}
	}
}

// canSendNow reports whether n bytes of a stream's messages fit in one frame, and nothing must go
// before them. conn.mu is held.
func (o *output) canSendNow(st *Stream, n int) bool {
	waits := o.corked || len(o.control)+len(o.ready)+len(st.queue) > 0
	return st.begun && !waits && n <= min(o.largest, o.window, st.window) && o.greeted && !o.closed.Load() && !o.socket.blocked()
}

// sendNow writes messages for which canSendNow is true. Most messages to an idle proxy go this way.
// conn.mu is held.
func (o *output) sendNow(st *Stream, messages [][][]byte, n int) {
	buf := writeBuffers.Get().(*writeBuffer)
	defer writeBuffers.Put(buf)
	o.window, st.window = o.window-n, st.window-n
	b := appendFrame(buf[:0], n, xhttp2.FrameData, 0, st.id)
	for _, parts := range messages {
		b = appendPrefix(b, framedSize(parts)-prefixLen)
		for _, p := range parts {
			b = append(b, p...)
		}
	}
	o.write(b)
}

// write writes frames. If it fails, the connection ends.
func (o *output) write(b []byte) {
	var err error
	if o.tls != nil {
		_, err = o.tls.Write(b)
	} else {
		_, err = o.socket.Write(b)
	}
	if err != nil {
		o.cut()
	}
}

// room is what is left in a buffer after a full frame.
const room = len(writeBuffer{}) - 2*frameHead - maxFrame

// frames appends frames to b, about as many as fit.
func (o *output) frames(b []byte) []byte {
	b = append(b, o.control...)
	o.control = o.control[:0]
	if cap(o.control) > 256 {
		o.control = nil
	}
	for n := len(o.ready); n > 0 && len(b) < room; n-- {
		st := o.ready[0]
		copy(o.ready, o.ready[1:])
		o.ready[len(o.ready)-1] = nil
		o.ready = o.ready[:len(o.ready)-1]
		before := len(b)
		b = o.framesOf(st, b)
		if len(b) > before && st.more() { // it waits for its next turn
			o.ready = append(o.ready, st)
			n++
		} else {
			st.queued = false
		}
	}
	return b
}

// more reports whether a stream has something to send, even if a window forbids it.
func (st *Stream) more() bool { return !st.gone && (len(st.queue) > 0 || st.ending && !st.ended()) }

// ended reports whether the end of a stream was sent. The stream is then half closed, or gone.
func (st *Stream) ended() bool { return st.ending && len(st.queue) == 0 && st.trailers == nil }

// sent reports whether everything of a stream was sent, including its end. conn.mu is held.
func (o *output) sent(st *Stream) bool { return st.begun && st.ended() }

// framesOf appends the next frames of a stream: at most one with DATA.
func (o *output) framesOf(st *Stream, b []byte) []byte {
	if st.gone || o.sent(st) {
		return b
	}
	if !st.begun && len(st.queue) > 0 {
		b = o.headersOf(st, b, nil)
	}
	if len(st.queue) > 0 {
		b = o.dataOf(st, b)
	}
	if len(st.queue) > 0 || !st.ending {
		return b
	}
	if st.trailers != nil {
		b = o.headersOf(st, b, st.trailers)
		st.trailers = nil
	}
	switch {
	case st.remoteClosed:
		o.remove(st)
	case st.head == nil: // the rest of the request is not needed
		b = appendReset(b, st.id, xhttp2.ErrCodeNo)
		o.remove(st)
	}
	return b
}

// headersOf appends a HEADERS frame: the first one, the last one, or the only one.
func (o *output) headersOf(st *Stream, b, trailers []byte) []byte {
	at := len(b)
	flags := xhttp2.FlagHeadersEndHeaders
	b = appendFrame(b, 0, xhttp2.FrameHeaders, 0, st.id)
	if o.resized {
		o.resized = false
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

// dataOf appends a DATA frame with as much of the next message as the windows allow.
func (o *output) dataOf(st *Stream, b []byte) []byte {
	m := &st.queue[0]
	n := min(m.left, o.largest, o.window, st.window)
	if n <= 0 {
		return b
	}
	o.window, st.window = o.window-n, st.window-n
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

// append appends the next n bytes of a message.
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

// Sending needs no HPACK state: header blocks consist of entries of the static table and of
// literals. So the connection keeps no encoder and negotiates no table size.

// tableUpdate sets the size of the dynamic table, which is not used, to 0. It must be at the
// beginning of the first block after the peer lowered its limit.
const tableUpdate = 0x20

// responseHead is the header block that begins a response: ":status: 200" and "content-type:
// application/grpc", by their indexes in the static table.
const responseHead = "\x88\x0f\x10\x10application/grpc"

// appendField appends a literal that must not be indexed.
func appendField(b []byte, name, value string) []byte {
	b = append(b, 0)
	b = append(appendLength(b, len(name)), name...)
	return append(appendLength(b, len(value)), value...)
}

// appendLength appends an integer with a prefix of seven bits.
func appendLength(b []byte, n int) []byte {
	const most = 1<<7 - 1
	if n < most {
		return append(b, byte(n))
	}
	b = append(b, most)
	for n -= most; n >= 1<<7; n >>= 7 {
		b = append(b, byte(n)|1<<7)
	}
	return append(b, byte(n))
}

// appendStatus appends ":status", whose name is entry 8 of the static table.
func appendStatus(b []byte, code int) []byte {
	return append(append(b, 8, 3), strconv.Itoa(code)...)
}

// trailers returns the header block of a status.
func trailers(s *Status) []byte {
	b := appendField(nil, "grpc-status", strconv.FormatUint(uint64(s.Code), 10))
	if s.Message != "" {
		b = appendField(b, "grpc-message", percentEncode(s.Message))
	}
	if s.Code == Unimplemented {
		b = appendField(b, "grpc-accept-encoding", "identity")
	}
	return b
}

const frameHead = 9 // bytes of a frame's header

func appendFrame(b []byte, length int, t xhttp2.FrameType, flags xhttp2.Flags, stream uint32) []byte {
	b = append(b, byte(length>>16), byte(length>>8), byte(length), byte(t), byte(flags))
	return binary.BigEndian.AppendUint32(b, stream)
}

func appendWindowUpdate(b []byte, stream uint32, credit int) []byte {
	b = appendFrame(b, 4, xhttp2.FrameWindowUpdate, 0, stream)
	return binary.BigEndian.AppendUint32(b, uint32(credit)) //nolint:gosec // it is at most a window
}

func appendReset(b []byte, stream uint32, code xhttp2.ErrCode) []byte {
	b = appendFrame(b, 4, xhttp2.FrameRSTStream, 0, stream)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

func appendPing(b []byte, flags xhttp2.Flags, data [8]byte) []byte {
	return append(appendFrame(b, len(data), xhttp2.FramePing, flags, 0), data[:]...)
}

func appendGoAway(b []byte, lastID uint32, code xhttp2.ErrCode, text string) []byte {
	b = appendFrame(b, 8+len(text), xhttp2.FrameGoAway, 0, 0)
	b = binary.BigEndian.AppendUint32(b, lastID)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return append(b, text...)
}

func appendSettings(b []byte, list ...xhttp2.Setting) []byte {
	b = appendFrame(b, 6*len(list), xhttp2.FrameSettings, 0, 0)
	for _, s := range list {
		b = binary.BigEndian.AppendUint16(b, uint16(s.ID))
		b = binary.BigEndian.AppendUint32(b, s.Val)
	}
	return b
}
