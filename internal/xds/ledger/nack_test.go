package ledger

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestShortenedKeepsTheReason: Envoy prints the resource before the reason.
func TestShortenedKeepsTheReason(t *testing.T) {
	long := Shortened("Error adding/updating listener(s) x: " + strings.Repeat("a", 4*maxMessage) + ": the reason")
	require.Len(t, long, maxMessage)
	require.True(t, strings.HasPrefix(long, "Error adding/updating listener(s) x: aaa"), long)
	require.True(t, strings.HasSuffix(long, "aaa: the reason"), long)
	require.Equal(t, "short", Shortened("short"))
	for i := range 4 {
		cut := Shortened(strings.Repeat("x", i) + strings.Repeat("🙂", maxMessage))
		require.True(t, utf8.ValidString(cut), "characters are not cut")
		require.LessOrEqual(t, len(cut), maxMessage)
		require.Greater(t, len(cut), maxMessage-2*utf8.UTFMax)
	}
}

// TestMessageForEachResource: Envoy reports all refused resources of a response in
// one message.
func TestMessageForEachResource(t *testing.T) {
	const message = "Error adding/updating listener(s) 10.0.0.0_80: access log of 0.0.0.0_80\n0.0.0.0_80: bad\npath: x\nvirtualInbound: wasm\n"
	all := []string{"0.0.0.0_80", "10.0.0.0_80", "virtualInbound"}
	require.Equal(t, "10.0.0.0_80: access log of 0.0.0.0_80", messageFor(message, "10.0.0.0_80", all))
	require.Equal(t, "0.0.0.0_80: bad\npath: x", messageFor(message, "0.0.0.0_80", all))
	require.Equal(t, "virtualInbound: wasm", messageFor(message, "virtualInbound", all))
	require.Equal(t, message, messageFor(message, "virtualInbound", all[2:]), "the whole message is about the only one")
	require.Equal(t, "I like neither", messageFor("I like neither", "virtualInbound", all))
}
