package server

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

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
