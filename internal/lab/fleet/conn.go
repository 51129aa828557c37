package fleet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Sizes of an HTTP/2 client like Envoy: the windows are so large that they do not limit.
const (
	streamWindow = 16 << 20
	connWindow   = 24 << 20
	maxFrame     = 16 << 10 // the limit of every peer
	streamID     = 1
	frameHead    = 9 // bytes of a frame's header
	prefixLen    = 5 // of a gRPC message
	keepWrite    = 64 << 10
)

const deltaMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"

// conn is the state of one gRPC stream on one connection, without the connection: received bytes go to receive, bytes to
// send come from out. The reader owns it.
type conn struct {
	out io.Writer
	w   []byte        // frames to write; nil, or borrowed
	fr  *http2.Framer // writes to w, and reads frames other than DATA
	one bytes.Reader  // such a frame

	body   []byte // of messages; nil, or borrowed
	off    int    // of body: what is sent; the peer's windows do not permit the rest
	quota  [2]int // the peer's: connection, stream
	window int    // the peer's initial one of a stream

	part  []byte // the beginning of an incomplete frame; of DATA, of its header
	data  int    // missing bytes of a DATA frame
	eaten [2]int // received and not returned to the window: connection, stream
	in    []byte // received of incomplete messages
}

func newConn(out io.Writer, authority string) (*conn, error) {
	h := &conn{out: out, quota: [2]int{65535, 65535}, window: 65535}
	h.fr = http2.NewFramer(framesOf{h}, &h.one)
	h.fr.SetReuseFrames()
	h.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.w = append(borrow(maxFrame), http2.ClientPreface...)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", deltaMethod}, {":authority", authority},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"user-agent", "moonsail-lab"},
	} {
		if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(
		h.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow}, http2.Setting{ID: http2.SettingEnablePush}),
		h.fr.WriteWindowUpdate(0, connWindow-65535),
		h.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: streamID, BlockFragment: block.Bytes(), EndHeaders: true}),
	); err != nil {
		return nil, err
	}
	return h, nil
}

// framesOf receives the frames of a Framer.
type framesOf struct{ *conn }

func (f framesOf) Write(b []byte) (int, error) {
	if f.w == nil {
		f.conn.w = borrow(len(b))
	}
	f.conn.w = append(f.conn.w, b...)
	return len(b), nil
}

// receive processes received bytes. It calls take with each complete message, which is valid only during the call.
func (h *conn) receive(b []byte, take func([]byte) error) error {
	for len(b) > 0 {
		var err error
		if h.data > 0 {
			k := min(h.data, len(b))
			h.data -= k
			err = h.messages(b[:k], take)
			b = b[k:]
		} else if f, rest := h.frame(b); f != nil {
			err = h.handle(f)
			h.part, b = h.part[:0], rest
		} else {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// frame returns the next frame, of DATA only its header, and the bytes after it. nil: it is incomplete, and its
// beginning was kept.
func (h *conn) frame(b []byte) (frame, rest []byte) {
	if len(h.part) == 0 {
		if n := need(b); len(b) >= n {
			return b[:n], b[n:]
		}
	}
	for n := need(h.part); len(h.part) < n; n = need(h.part) {
		if len(b) == 0 {
			return nil, nil
		}
		k := min(n-len(h.part), len(b))
		h.part = append(h.part, b[:k]...)
		b = b[k:]
	}
	return h.part, b
}

// need is the length of a frame that begins with b, as far as it is known.
func need(b []byte) int {
	if len(b) < frameHead || isData(b) {
		return frameHead
	}
	return frameHead + length(b)
}

func length(head []byte) int { return int(head[0])<<16 | int(head[1])<<8 | int(head[2]) }

func isData(head []byte) bool {
	return http2.FrameType(head[3]) == http2.FrameData && !http2.Flags(head[4]).Has(http2.FlagDataPadded)
}

// handle processes a result of frame.
func (h *conn) handle(b []byte) error {
	if !isData(b) {
		return h.other(b)
	}
	if h.data = length(b); http2.Flags(b[4]).Has(http2.FlagDataEndStream) {
		return errors.New("the server ended the stream")
	}
	return h.taken(h.data)
}

// taken returns windows that are half used.
func (h *conn) taken(n int) error {
	for i, limit := range [2]int{connWindow, streamWindow} {
		if h.eaten[i] += n; h.eaten[i] >= limit/2 {
			if err := h.fr.WriteWindowUpdate(uint32(i*streamID), uint32(h.eaten[i])); err != nil {
				return err
			}
			h.eaten[i] = 0
		}
	}
	return nil
}

// other processes a frame without messages.
func (h *conn) other(b []byte) error {
	h.one.Reset(b)
	f, err := h.fr.ReadFrame()
	if err != nil {
		return fmt.Errorf("a frame of type %d: %w", b[3], err)
	}
	switch f := f.(type) {
	case *http2.DataFrame:
		return errors.New("unexpected padding of DATA")
	case *http2.MetaHeadersFrame:
		if f.StreamEnded() {
			return endOf(f)
		}
	case *http2.SettingsFrame:
		return h.settings(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			return h.fr.WritePing(true, f.Data)
		}
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			h.quota[0] += int(f.Increment)
		} else {
			h.quota[1] += int(f.Increment)
		}
	case *http2.RSTStreamFrame:
		return fmt.Errorf("the server reset the stream: %v", f.ErrCode)
	case *http2.GoAwayFrame:
		return fmt.Errorf("the server sent GOAWAY: %v %s", f.ErrCode, f.DebugData())
	}
	return nil
}

func endOf(f *http2.MetaHeadersFrame) error {
	var status, message string
	for _, h := range f.Fields {
		switch h.Name {
		case "grpc-status":
			status = h.Value
		case "grpc-message":
			message = h.Value
		}
	}
	return fmt.Errorf("the server ended the stream: gRPC status %s: %s", status, message)
}

func (h *conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
		h.quota[1] += int(v) - h.window
		h.window = int(v)
	}
	return h.fr.WriteSettingsAck()
}

// messages processes bytes of DATA.
func (h *conn) messages(b []byte, take func([]byte) error) error {
	if len(h.in) > 0 {
		h.in = append(h.in, b...)
		b = h.in
	}
	for len(b) >= prefixLen {
		size := int(binary.BigEndian.Uint32(b[1:prefixLen]))
		if b[0] != 0 {
			return errors.New("unexpected compressed message")
		}
		if len(b) < prefixLen+size {
			break
		}
		if err := take(b[prefixLen : prefixLen+size]); err != nil {
			return err
		}
		b = b[prefixLen+size:]
	}
	h.keep(b)
	return nil
}

// keep stores the beginning of a message.
func (h *conn) keep(b []byte) {
	switch {
	case len(b) == 0:
		giveBack(&h.in)
	case len(h.in) == 0:
		size := maxFrame
		if len(b) >= prefixLen {
			size = max(size, 2*prefixLen+int(binary.BigEndian.Uint32(b[1:prefixLen])))
		}
		h.in = append(borrow(size), b...)
	case len(b) < len(h.in):
		h.in = append(h.in[:0], b...)
	}
}

// release returns the borrowed buffers, at the end of the conn.
func (h *conn) release() {
	giveBack(&h.in)
	giveBack(&h.body)
	giveBack(&h.w)
}
