package server

import (
	"testing"
	"time"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// TestPatience: a proxy that never requests the endpoints of a cluster receives its listeners after
// some time, even if it was seen to wait for nothing before.
func TestPatience(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		st := h.server.streams.all()[0]
		waits := func() bool {
			st.check(time.Now())
			st.mu.Lock()
			defer st.mu.Unlock()
			return !st.wait.IsZero()
		}
		h.eventually("nothing waits", func() bool { return !waits() })
		h.commit(edsCluster("c2", "1"), endpoints("c2", "1"), listener("l2", "1"))
		c.take(resource.Cluster, "c2")
		c.take(resource.Endpoints, "c2")
		h.eventually("the listener waits", waits)
		st.check(time.Now().Add(patience / 2))
		c.quiet()
		st.check(time.Now().Add(patience + time.Second))
		c.take(resource.Listener, "l2")
	})
}
