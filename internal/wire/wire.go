// Package wire reads encoded protobuf messages whose fields are wanted as they are, without
// making a message of them.
package wire

import "google.golang.org/protobuf/encoding/protowire"

// Fields calls f with each length-delimited field of a message, in order, and skips the others.
// What f gets points into b. The first error ends it: f's, or that b is not a whole message.
func Fields(b []byte, f func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := f(num, v); err != nil {
			return err
		}
	}
	return nil
}
