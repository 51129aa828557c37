package wire

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// message returns a message with field 1 "a", a number in field 2, and field 3 "b".
func message() []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "a")
	b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 300)
	return protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), "b")
}

func TestFields(t *testing.T) {
	var seen []string
	take := func(n protowire.Number, v []byte) error {
		seen = append(seen, string(rune('0'+n))+string(v))
		return nil
	}
	require.NoError(t, Fields(message(), take))
	require.Equal(t, []string{"1a", "3b"}, seen)
	require.NoError(t, Fields(nil, take))
	whole := map[int]bool{3: true, 6: true} // between two fields
	for n := 1; n < len(message()); n++ {
		require.Equal(t, whole[n], Fields(message()[:n], take) == nil, "cut off after %d bytes", n)
	}
	stop := errors.New("enough")
	seen = nil
	require.ErrorIs(t, Fields(message(), func(n protowire.Number, v []byte) error { _ = take(n, v); return stop }), stop)
	require.Equal(t, []string{"1a"}, seen)
}

func TestAppendHeader(t *testing.T) {
	for _, num := range []protowire.Number{1, 15, 16, 3000} {
		for _, n := range []int{0, 1, 127, 128, 40000} {
			content := make([]byte, n)
			field := append(AppendHeader(nil, num, n), content...)
			require.Len(t, field, SizeField(num, n))
			require.NoError(t, Fields(field, func(got protowire.Number, v []byte) error {
				require.Equal(t, num, got)
				require.Equal(t, content, v)
				return nil
			}))
		}
	}
}
