package ledger

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestWatchesHaveWholeLines: an allocation of this size begins with a word of the runtime's.
func TestWatchesHaveWholeLines(t *testing.T) {
	const line, word = 64, 8
	require.Zero(t, unsafe.Sizeof(watch{})%line)
	require.Zero(t, (unsafe.Offsetof(Ledger{}.watches)+word)%line)
}
