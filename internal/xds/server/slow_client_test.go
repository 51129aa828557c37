package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
	"github.com/moonsail/moonsail/test/await"
)

// TestSlowClientDelaysNoOthers: a client that reads nothing, with more sent than fits its
// windows, has at most one response of each type waiting. Others receive everything at once, and so
// does the client when it reads again.
func TestSlowClientDelaysNoOthers(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{Senders: 1})
		var big []table.Update
		filler := strings.Repeat("x", 1000)
		for i := range 2000 {
			big = append(big, edsCluster(fmt.Sprint("big", i), filler))
		}
		h.commit(append(big, edsCluster("c1", "1"), endpoints("c1", "1"), listener("l1", "1"))...)

		slow := h.connectPaused(nodeID, "")
		slow.subscribe(resource.Cluster) // 2 MB that it does not read
		slow.subscribe(resource.Endpoints, "c1")
		slow.subscribe(resource.Cluster, "big7")
		h.eventually("its responses wait", func() bool {
			p, ok := h.server.Proxy(nodeID)
			return ok && len(p.Types) == 2 && !p.Types[0].InFlightSince.IsZero() && !p.Types[1].InFlightSince.IsZero() && waiting(h, slow) > 0
		})

		fast := h.connectAs("sidecar~10.0.0.2~app-2.shop~shop.svc.cluster.local", "")
		fast.subscribe(resource.Endpoints, "c1")
		fast.take(resource.Endpoints, "c1")
		var last model.Revision
		for i := range 50 {
			last = h.commit(endpoints("c1", fmt.Sprint(i)))
			fast.take(resource.Endpoints, "c1")
			require.LessOrEqual(t, waiting(h, slow), 5)
		}
		require.Zero(t, h.observer.outcomes(last)[distribution.Gone])

		close(slow.read)
		r := await.From(t, slow.got)
		require.Len(t, r.Resources, 2001)
		slow.ack(r)
		slow.take(resource.Endpoints, "c1") // as it was when it was sent
		for range 3 {                       // big7 again, and c1 as it is now, in any order
			r := await.From(t, slow.got)
			slow.ack(r)
			if r.TypeUrl == resource.EndpointsURL && r.Resources[0].Version == h.out.State().Get(resource.Endpoints, "c1").Version {
				break
			}
		}
		h.eventually("nothing waits", func() bool { return waiting(h, slow) == 0 })
		p, ok := h.server.Proxy(nodeID)
		require.True(t, ok)
		require.Equal(t, last, p.Types[1].Sent)
	})
}

// waiting returns the number of messages that a client has not read.
func waiting(h *harness, _ *client) int {
	for _, st := range h.server.streams.all() {
		if st.proxy.ID == nodeID {
			st.mu.Lock()
			defer st.mu.Unlock()
			return st.delivery.unread()
		}
	}
	return 0
}

// TestPendingRevisionsAreBounded: for a client that never answers, at most maxPending revisions are
// pending, and each is counted exactly once.
func TestPendingRevisionsAreBounded(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		first := h.commit(endpoints("c1", "first"))
		c.expect(resource.Endpoints, "c1") // not answered
		for i := range maxPending + 10 {
			h.commit(endpoints("c1", fmt.Sprint(i)))
		}
		h.eventually("the oldest revision is reported as gone", func() bool { return h.observer.outcomes(first)[distribution.Gone] == 1 })
		c.cancel()
		h.eventually("all are accounted for", func() bool {
			h.observer.mu.Lock()
			defer h.observer.mu.Unlock()
			for rev, n := range h.observer.published {
				sum := 0
				for _, k := range h.observer.settled[rev] {
					sum += k
				}
				if sum > n {
					t.Fatalf("revision %d: %d settled of %d", rev, sum, n)
				}
				if sum < n {
					return false
				}
			}
			return true
		})
	})
}
