// Package wire reads and writes fields of encoded protobuf messages, without decoding the messages.
package wire

import "google.golang.org/protobuf/encoding/protowire"

// Fields calls f with each length-delimited field of a message, in order, and skips other fields.
// The slices point into b. It returns the first error of f, or an error if b is not a complete
// message.
func Fields(b []byte, f func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		num, v, rest, err := Next(b)
		if err != nil {
			return err
		}
		if b = rest; num != 0 {
			if err := f(num, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// Next returns the first field of a message that is not empty, and the rest. num is 0 if the field
// is not length-delimited.
func Next(b []byte) (num protowire.Number, v, rest []byte, err error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return 0, nil, nil, protowire.ParseError(n)
	}
	b = b[n:]
	if typ != protowire.BytesType {
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return 0, nil, nil, protowire.ParseError(n)
		}
		return 0, nil, b[n:], nil
	}
	if v, n = protowire.ConsumeBytes(b); n < 0 {
		return 0, nil, nil, protowire.ParseError(n)
	}
	return num, v, b[n:], nil
}

// SizeField returns the size of a length-delimited field with n bytes of content.
func SizeField(num protowire.Number, n int) int {
	return protowire.SizeTag(num) + protowire.SizeBytes(n)
}

// AppendHeader appends the header of a length-delimited field with n bytes of content.
func AppendHeader(b []byte, num protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.BytesType), uint64(n))
}

// AppendField appends a length-delimited field.
func AppendField[T ~string | ~[]byte](b []byte, num protowire.Number, content T) []byte {
	return append(AppendHeader(b, num, len(content)), content...)
}
