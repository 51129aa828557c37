package fleet

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Sizes of an HTTP/2 client like Envoy's: windows so large that they are not felt.
const (
	streamWindow = 16 << 20
	connWindow   = 24 << 20
	readBuffer   = 8 << 10
	maxFrame     = 16 << 10 // what every peer takes
	streamID     = 1
	prefixLen    = 5 // of a gRPC message
	keepWrite    = 64 << 10
)

const deltaMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"

// conn is one gRPC stream on one TCP connection. It belongs to its proxy's goroutine.
type conn struct {
	net net.Conn
	r   *bufio.Reader
	fr  *http2.Framer
	w   bytes.Buffer // frames that are to be written

	body   []byte // of messages
	off    int    // of body, what is sent; the peer's windows have not taken the rest
	quota  [2]int // that the peer gives: connection, stream
	window int    // the peer's initial one of a stream

	eaten [2]int // received and not given back: connection, stream
	in    []byte // received of messages that are not whole
}

func newConn(c net.Conn, authority string) (*conn, error) {
	h := &conn{net: c, r: bufio.NewReaderSize(c, readBuffer), quota: [2]int{65535, 65535}, window: 65535}
	h.fr = http2.NewFramer(&h.w, h.r)
	h.fr.SetReuseFrames()
	h.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.w.WriteString(http2.ClientPreface)
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

// send queues a message; flush writes it.
func (h *conn) send(message []byte) {
	if h.body == nil && len(message) > keepWrite {
		h.body = borrow(4 * len(message)) // others like it follow
	}
	h.body = binary.BigEndian.AppendUint32(append(h.body, 0), uint32(len(message)))
	h.body = append(h.body, message...)
}

// flush writes what is queued, as far as the peer's windows allow.
func (h *conn) flush() error {
	for h.off < len(h.body) {
		n := min(len(h.body)-h.off, maxFrame, h.quota[0], h.quota[1])
		if n <= 0 {
			break
		}
		if err := h.fr.WriteData(streamID, false, h.body[h.off:h.off+n]); err != nil {
			return err
		}
		h.quota[0], h.quota[1] = h.quota[0]-n, h.quota[1]-n
		if h.off += n; h.w.Len() >= keepWrite/2 {
			if err := h.write(); err != nil {
				return err
			}
		}
	}
	if h.off == len(h.body) {
		giveBack(h.body)
		h.body, h.off = nil, 0
	}
	return h.write()
}

// more tells that more has come already. Envoy reads all that is there before it writes.
func (h *conn) more() bool { return h.r.Buffered() > 0 }

// write writes the frames that are ready.
func (h *conn) write() error {
	if h.w.Len() == 0 {
		return nil
	}
	_, err := h.net.Write(h.w.Bytes())
	if h.w.Reset(); h.w.Cap() > keepWrite {
		h.w = bytes.Buffer{}
	}
	return err
}

// receive reads one frame. It calls take with each message that is whole now; the
// message is only valid during the call.
func (h *conn) receive(take func([]byte) error) error {
	f, err := h.fr.ReadFrame()
	if err != nil {
		return err
	}
	switch f := f.(type) {
	case *http2.DataFrame:
		if err := h.data(f, take); err != nil {
			return err
		}
		if f.StreamEnded() {
			return errors.New("the server ended the stream")
		}
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
		return fmt.Errorf("the server said GOAWAY: %v %s", f.ErrCode, f.DebugData())
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

// data takes a frame's bytes, and gives windows back that are half used.
func (h *conn) data(f *http2.DataFrame, take func([]byte) error) error {
	n := int(f.Header().Length)
	for i, limit := range [2]int{connWindow, streamWindow} {
		if h.eaten[i] += n; h.eaten[i] >= limit/2 {
			if err := h.fr.WriteWindowUpdate(uint32(i*streamID), uint32(h.eaten[i])); err != nil {
				return err
			}
			h.eaten[i] = 0
		}
	}
	b := f.Data()
	if len(h.in) > 0 {
		h.in = append(h.in, b...)
		b = h.in
	}
	for len(b) >= prefixLen {
		size := int(binary.BigEndian.Uint32(b[1:prefixLen]))
		if b[0] != 0 {
			return errors.New("the server compressed a message, which was not offered")
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

// buffers are those of messages that come in many frames.
var buffers sync.Pool

// borrow gives an empty buffer for so many bytes.
func borrow(size int) []byte {
	if b, ok := buffers.Get().(*[]byte); ok && cap(*b) >= size {
		return (*b)[:0]
	}
	return make([]byte, 0, 1<<bits.Len(uint(size)))
}

func (h *conn) release() {
	giveBack(h.in)
	h.in = nil
}

// giveBack takes a buffer that borrow may have given; small ones are not worth it.
func giveBack(b []byte) {
	if b = b[:0]; cap(b) >= maxFrame {
		buffers.Put(&b)
	}
}

// keep holds on to the beginning of a message.
func (h *conn) keep(b []byte) {
	switch {
	case len(b) == 0:
		h.release()
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
