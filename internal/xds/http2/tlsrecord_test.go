package http2

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

func record(n int) []byte {
	b := make([]byte, recordHeader+n)
	binary.BigEndian.PutUint16(b[3:], uint16(n)) //nolint:gosec //nolint:gosec // records have at most 64 KB
	return b
}

func TestUpToBoundary(t *testing.T) {
	for _, c := range []struct {
		name  string
		in    [][]byte // as received
		limit int
		want  []int // lengths returned
	}{
		{"header and payload apart", [][]byte{record(20)}, 100, []int{5, 20}},
		{"never beyond a record", [][]byte{append(record(3), record(4)...)}, 100, []int{5, 3, 5, 4}},
		{"an empty record", [][]byte{append(record(0), record(1)...)}, 100, []int{5, 5, 1}},
		{"a split header", [][]byte{record(7)[:2], record(7)[2:]}, 100, []int{2, 3, 7}},
		{"a split payload", [][]byte{record(7)[:9], record(7)[9:]}, 100, []int{5, 4, 3}},
		{"a small destination", [][]byte{record(5)}, 3, []int{3, 2, 3, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r tlsRecords
			var got []int
			for _, b := range c.in {
				for len(b) > 0 {
					n := len(r.upToBoundary(b, c.limit))
					got, b = append(got, n), b[n:]
				}
			}
			require.Equal(t, c.want, got)
		})
	}
}
