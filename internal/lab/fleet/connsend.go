package fleet

import (
	"encoding/binary"
	"math/bits"
	"sync"

	"golang.org/x/net/http2"
)

// begin queues a message of a size, which the caller appends to h.body.
func (h *conn) begin(size int) {
	if h.body == nil {
		h.body = borrow(prefixLen + size)
	}
	h.body = binary.BigEndian.AppendUint32(append(h.body, 0), uint32(size)) //nolint:gosec // some megabytes
}

// send queues a message; flush writes it.
func (h *conn) send(message []byte) {
	if h.body == nil && len(message) > keepWrite {
		h.body = borrow(4 * len(message)) // similar ones follow
	}
	h.begin(len(message))
	h.body = append(h.body, message...)
}

// flush writes queued bytes, as far as the peer's windows permit.
func (h *conn) flush() error {
	for h.off < len(h.body) {
		n := min(len(h.body)-h.off, maxFrame, h.quota[0], h.quota[1])
		if n <= 0 {
			break
		}
		if h.w == nil {
			h.w = borrow(frameHead + n)
		}
		h.w = append(h.w, byte(n>>16), byte(n>>8), byte(n), byte(http2.FrameData), 0, 0, 0, 0, streamID)
		h.w = append(h.w, h.body[h.off:h.off+n]...)
		h.quota[0], h.quota[1] = h.quota[0]-n, h.quota[1]-n
		if h.off += n; len(h.w) >= keepWrite/2 {
			if err := h.write(); err != nil {
				return err
			}
		}
	}
	if h.off == len(h.body) {
		giveBack(&h.body)
		h.off = 0
	}
	return h.write()
}

// write writes complete frames.
func (h *conn) write() error {
	if len(h.w) == 0 {
		return nil
	}
	_, err := h.out.Write(h.w)
	giveBack(&h.w)
	return err
}

// Buffers are borrowed while they have content: small ones for ACKs, large ones for messages of many frames.
var small, large sync.Pool

const smallBuffer = 1 << 10

// borrow returns an empty buffer for size bytes.
func borrow(size int) []byte {
	if size <= smallBuffer {
		if b, ok := small.Get().(*[smallBuffer]byte); ok {
			return b[:0]
		}
		return make([]byte, 0, smallBuffer)
	}
	if b, ok := large.Get().(*[]byte); ok && cap(*b) >= size {
		return (*b)[:0]
	}
	return make([]byte, 0, 1<<bits.Len(uint(size)))
}

// giveBack returns a buffer of borrow, or another one.
func giveBack(b *[]byte) {
	switch c := cap(*b); {
	case c > smallBuffer:
		empty := (*b)[:0]
		large.Put(&empty)
	case c == smallBuffer:
		small.Put((*[smallBuffer]byte)((*b)[:smallBuffer]))
	}
	*b = nil
}
