package http2

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/await"
)

// TestAnswersGoTogether: answers to messages that arrived together go in one write. A pipe gives
// the reader one write at a time.
func TestAnswersGoTogether(t *testing.T) {
	_, p, stop := pipe(t)
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		p.greet()
		p.open(echo)
		p.send(1, "first")
	}()
	require.Equal(t, "first", string(p.message(1)))
	await.From(t, ready)
	want := [][]byte{[]byte("one of three"), []byte("two of three"), []byte("three of three")}
	require.NoError(t, p.fr.WriteData(1, false, bytes.Join([][]byte{framed(want[0]), framed(want[1]), framed(want[2])}, nil)))
	b := make([]byte, 1<<12)
	n, err := p.c.Read(b)
	require.NoError(t, err)
	for _, w := range want {
		require.Contains(t, string(b[:n]), string(w))
	}
	stop()
}
