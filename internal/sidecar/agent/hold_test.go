package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // takes no real time

// TestHooksThatBeginLater checks that a drain does not wait for hooks that the kubelet cannot have begun.
func TestHooksThatBeginLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hooks
		h.begin()()
		require.False(t, h.inProgress())
		endFirst := h.begin()
		elapse(time.Hour)
		h.drain()
		elapse(holdStart)
		endSecond := h.begin()
		elapse(1)
		h.drain()
		endThird := h.begin()
		endFirst()
		require.True(t, h.inProgress())
		endSecond()
		require.False(t, h.inProgress())
		endThird()
		require.False(t, h.inProgress())
		h.begin()()
		require.False(t, h.inProgress())
	})
}
