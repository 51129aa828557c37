package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// later runs the watchdog's check of all streams, at a later time.
func (h *harness) later(d time.Duration) {
	for _, st := range h.server.streams.all() {
		st.check(time.Now().Add(d))
	}
}

// TestTemporaryRefusalsAreRetried: a listener that Envoy refuses because of a plugin's module is
// sent again, at growing intervals and a limited number of times. It is held back until it is
// accepted, and no other listener is sent again.
func TestTemporaryRefusalsAreRetried(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		h.commit(listener("l1", "bad"))
		c.nack(c.expect(resource.Listener, "l1"), "no such filter")
		h.eventually("it is held back", func() bool { return len(h.server.Refusals()) == 1 })
		h.later(time.Hour)
		h.later(time.Hour)

		const words = "Error adding/updating listener(s) l1: Unable to create Wasm plugin p"
		rev := h.commit(listener("l1", "worse"))
		c.nack(c.expect(resource.Listener, "l1"), words)
		h.eventually("it is settled", func() bool { return h.observer.outcomes(rev)[distribution.NACKed] == 1 })
		h.later(0)
		h.later(watchEvery - time.Second)
		refused := func() bool { return len(h.server.Refusals()) == 1 && h.server.Refusals()[0].Message == words }
		for n := range maxTries {
			h.later(time.Duration(n+1) * time.Hour)
			again := c.expect(resource.Listener, "l1")
			require.True(t, refused(), "as long as it is not taken")
			c.nack(again, words)
			h.eventually("it is held back", func() bool { return !h.inFlight() })
		}
		require.True(t, refused())
		h.later(100 * time.Hour)
		require.False(t, h.inFlight(), "it was tried often enough")
		require.Equal(t, map[distribution.Outcome]int{distribution.NACKed: 1}, h.observer.outcomes(rev), "the outcome of the change is reported once")

		h.commit(listener("l1", "worst"))
		c.nack(c.expect(resource.Listener, "l1"), words)
		h.eventually("it is held back", func() bool { return !h.inFlight() })
		h.later(0)
		h.later(time.Hour)
		c.take(resource.Listener, "l1")
		h.eventually("it is taken", func() bool { return len(h.server.Refusals()) == 0 })
		h.later(time.Hour)
		require.False(t, h.inFlight())
	})
}

// inFlight reports whether a listener is unanswered.
func (h *harness) inFlight() bool {
	for _, st := range h.server.streams.all() {
		st.mu.Lock()
		flies := st.ledger != nil && st.ledger.InFlight(resource.Listener)
		st.mu.Unlock()
		if flies {
			return true
		}
	}
	return false
}
