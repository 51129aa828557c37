package http2

import (
	"encoding/binary"
	"strconv"

	xhttp2 "golang.org/x/net/http2"
)

// Sending needs no HPACK state: header blocks consist of entries of the static table and of
// literals. There is no encoder to keep, and no table size to agree on.

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
	return binary.BigEndian.AppendUint32(b, uint32(credit)) //nolint:gosec //nolint:gosec // it is at most a window
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
