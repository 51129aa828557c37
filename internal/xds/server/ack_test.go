package server

import (
	"fmt"
	"sync"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
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

func TestStaleNoncesAreIgnored(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		h.commit(endpoints("c1", "2"))
		old := c.take(resource.Endpoints, "c1")
		h.commit(endpoints("c1", "3"))
		now := c.expect(resource.Endpoints, "c1")
		h.commit(endpoints("c1", "4"))
		c.ack(old)
		c.nack(old, "too late")
		for _, nonce := range []string{"", "999", "not a number", "-1", "18446744073709551616"} {
			c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointsURL, ResponseNonce: nonce})
		}
		c.subscribe(resource.Cluster, "c1") // its answer shows that nothing else was sent
		c.take(resource.Cluster, "c1")
		c.ack(now)
		c.take(resource.Endpoints, "c1")
	})
}

// TestSubscriptionsOfStaleRequestsCount: delta requests do not repeat subscriptions.
func TestSubscriptionsOfStaleRequestsCount(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		h.commit(endpoints("c2", "1"))
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointsURL, ResponseNonce: "999", ResourceNamesSubscribe: []string{"c2"}})
		c.take(resource.Endpoints, "c2")
	})
}

// meter records its calls.
type meter struct {
	unmetered
	mu        sync.Mutex // guards the fields
	pushed    []string
	queued    int
	took      int
	delivered int
}

func (m *meter) Pushed(t resource.Type, _ int, whole bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pushed = append(m.pushed, fmt.Sprint(t, " ", whole))
}

func (m *meter) Queued(time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queued++
}

func (m *meter) Took(resource.Type, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.took++
}

func (m *meter) Delivered(time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.delivered++
}

func TestPushesAreMetered(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		m := &meter{}
		h := newHarness(t, on, Options{Meter: m})
		c := h.warm("")
		h.commit(endpoints("c1", "2"))
		c.take(resource.Endpoints, "c1")
		h.eventually("everything is counted", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.took == 4 && m.delivered == 4 && m.queued == 1
		})
		require.Equal(t, []string{"CDS true", "EDS true", "LDS true", "EDS false"}, m.pushed)
	})
}
