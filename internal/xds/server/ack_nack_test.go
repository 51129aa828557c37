package server

import (
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

func TestOneInFlightAndLatestWins(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		h.commit(endpoints("c1", "2"))
		first := c.expect(resource.Endpoints, "c1")
		h.commit(endpoints("c1", "3"))
		h.commit(endpoints("c1", "4"))
		c.ack(first)
		r := c.take(resource.Endpoints, "c1")
		var got endpointv3.ClusterLoadAssignment
		require.NoError(t, r.Resources[0].Resource.UnmarshalTo(&got))
		require.Equal(t, "4", got.Endpoints[0].Locality.Zone)
		require.Equal(t, h.out.State().Get(resource.Endpoints, "c1").Version, r.Resources[0].Version)
		c.quiet()
	})
}

func TestOneChangeIsOneSmallMessage(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		h.commit(endpoints("c1", "2"))
		r := c.take(resource.Endpoints, "c1")
		require.Less(t, proto.Size(r), 400)
	})
}

func TestRefusedResourceIsHeldUntilItDiffers(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		h.commit(listener("l1", "bad"))
		c.nack(c.expect(resource.Listener, "l1"), "bad listener")
		h.commit(listener("l2", "good"))
		c.take(resource.Listener, "l2")

		p, ok := h.server.Proxy("app-1.shop")
		require.True(t, ok)
		held := p.Types[2].Held
		require.Len(t, held, 1)
		require.Equal(t, Held{Name: "l1", Version: h.out.State().Get(resource.Listener, "l1").Version, Message: "bad listener"}, held[0])

		h.commit(listener("l1", "good again"))
		c.take(resource.Listener, "l1")
		h.eventually("nothing is held", func() bool {
			p, _ := h.server.Proxy(nodeID)
			return len(p.Types[2].Held) == 0
		})
	})
}

func TestOutcomesAreCountedOnceForEachStream(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		other := h.connectAs("sidecar~10.0.0.2~app-2.shop~shop.svc.cluster.local", "")
		other.subscribe(resource.Cluster)
		other.take(resource.Cluster, "c1")

		rev := h.commit(endpoints("c1", "2"))
		c.take(resource.Endpoints, "c1")
		h.eventually("both settle", func() bool { return len(h.observer.outcomes(rev)) == 2 })
		require.Equal(t, map[distribution.Outcome]int{distribution.ACKed: 1, distribution.NotConcerned: 1}, h.observer.outcomes(rev))
		require.Equal(t, 2, h.observer.published[rev])
		require.Equal(t, 1, h.observer.sent[rev])

		rev = h.commit(listener("l1", "bad"))
		c.nack(c.expect(resource.Listener, "l1"), "no")
		h.eventually("both settle", func() bool { return len(h.observer.outcomes(rev)) == 2 })
		require.Equal(t, map[distribution.Outcome]int{distribution.NACKed: 1, distribution.NotConcerned: 1}, h.observer.outcomes(rev))

		rev = h.commit(endpoints("c1", "3"))
		c.expect(resource.Endpoints, "c1")
		c.cancel()
		h.eventually("both settle", func() bool { return len(h.observer.outcomes(rev)) == 2 })
		require.Equal(t, map[distribution.Outcome]int{distribution.Gone: 1, distribution.NotConcerned: 1}, h.observer.outcomes(rev))
		h.eventually("the binding is released", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return h.closed == 1 })

		rev = h.commitTo(h.in, listener("virtualInbound", "1"))
		h.eventually("the one that is left settles", func() bool { return h.observer.outcomes(rev)[distribution.NotConcerned] == 1 })
		require.Equal(t, 1, h.observer.published[rev])
	})
}
