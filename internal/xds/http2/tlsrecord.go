package http2

import "encoding/binary"

const recordHeader = 5 // bytes: type, version and length of a TLS record

// tlsRecords finds the boundaries of TLS records in received ciphertext.
//
// A tls.Conn never frees its input buffer. The buffer doubles whenever a record is read
// behind bytes of the record before it. A tls.Conn that reads at most one record at a time
// keeps a buffer for its largest record and no more: at most 18 KB instead of 40.
type tlsRecords struct {
	header [recordHeader]byte
	n      int // bytes of header that were read
	left   int // bytes of the record that are still to be read
}

// upToBoundary returns the prefix of b, of at most limit bytes, that ends where a record
// header or a record ends at the latest. The caller must consume all of it.
func (r *tlsRecords) upToBoundary(b []byte, limit int) []byte {
	b = b[:min(len(b), limit)]
	if r.left > 0 {
		b = b[:min(len(b), r.left)]
		r.left -= len(b)
		return b
	}
	k := copy(r.header[r.n:], b)
	if r.n += k; r.n == recordHeader {
		r.n, r.left = 0, int(binary.BigEndian.Uint16(r.header[3:]))
	}
	return b[:k]
}
