package server

import (
	"fmt"
	"testing"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// TestSendersWaitForNoStream: while a stream is busy, its sender continues with others. The stream
// catches up when it is done.
func TestSendersWaitForNoStream(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{Senders: 1})
		h.commit(edsCluster("c1", "1"), endpoints("c1", "0"))
		busy, other := h.connect(""), h.connectAs("sidecar~10.0.0.2~app-2.shop~shop.svc.cluster.local", "")
		for _, c := range []*client{busy, other} {
			c.subscribe(resource.Endpoints, "c1")
			c.take(resource.Endpoints, "c1")
		}
		var st *stream
		h.eventually("the ACK is read", func() bool {
			p, ok := h.server.Proxy(nodeID)
			return ok && len(p.Types) == 1 && p.Types[0].InFlightSince.IsZero()
		})
		for _, s := range h.server.streams.all() {
			if s.proxy.ID == nodeID {
				st = s
			}
		}
		st.mu.Lock()
		for i := range 5 {
			h.commit(endpoints("c1", fmt.Sprint(i+1)))
			other.take(resource.Endpoints, "c1")
		}
		st.mu.Unlock()
		busy.take(resource.Endpoints, "c1") // only its newest form
		busy.quiet()
	})
}
