package server

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// TestRequestsWaitForLongBatches: requests of proxies wait for a long batch in progress, and not for later
// ones.
func TestRequestsWaitForLongBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requestsWaitForLongBatch(t, longBatch-1, false)
		requestsWaitForLongBatch(t, longBatch, true)
	})
}

func requestsWaitForLongBatch(t *testing.T, n int, long bool) {
	snd := &sender{}
	s := &Server{senders: []*sender{{}, snd}}
	batch := make([]*stream, n)
	for i := range batch {
		batch[i] = &stream{}
	}
	yielded := false
	batch[n-1].mu.news.Store(true)
	batch[n-1].mu.then = func() {
		go func() { s.yield(); yielded = true }()
		synctest.Wait()
		require.Equal(t, !long, yielded, "%d streams", n)
	}
	snd.send(batch)
	synctest.Wait()
	require.True(t, yielded)
}

// TestSendersSkipBusyStreams: while a stream is busy, its sender continues with others. The stream
// catches up when it is done.
func TestSendersSkipBusyStreams(t *testing.T) {
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
