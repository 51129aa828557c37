package ledger

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReasonOfALongComplaintIsKept: Envoy prints the resource, and then what is wrong with it.
func TestReasonOfALongComplaintIsKept(t *testing.T) {
	long := shortened("Error adding/updating listener(s) x: " + strings.Repeat("a", 4*maxMessage) + ": the reason")
	require.Len(t, long, maxMessage)
	require.True(t, strings.HasPrefix(long, "Error adding/updating listener(s) x: aaa"), long)
	require.True(t, strings.HasSuffix(long, "aaa: the reason"), long)
	require.Equal(t, "short", shortened("short"))
}
