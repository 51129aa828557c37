package server

import (
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

const ratings = "outbound|80||ratings"

// addressesAt returns endpoints with addresses.
func addressesAt(cluster string, addresses ...string) table.Update {
	l := &endpointv3.LocalityLbEndpoints{}
	for _, a := range addresses {
		l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: a, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80}}}}}}})
	}
	return encodeEndpoints(cluster, l)
}

func TestHoldersOfGoneEndpoints(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		h.commit(edsCluster(ratings, "1"), addressesAt(ratings, "10.0.0.1", "10.0.0.2"), addressesAt("outbound|80||other", "10.0.0.1"))
		c := h.connect("")
		c.subscribe(resource.Cluster)
		c.take(resource.Cluster, ratings)
		c.subscribe(resource.Endpoints, ratings)
		c.take(resource.Endpoints, ratings)
		idle := h.connectAs(nodeOf("idle"), "")
		idle.subscribe(resource.Cluster)
		idle.take(resource.Cluster, ratings)

		rev := h.commit(addressesAt(ratings, "10.0.0.2"))
		gone := []distribution.GoneEndpoint{{Revision: rev, Since: time.Now(), Hosts: []string{"ratings"}, Address: "10.0.0.1"}}
		r := c.expect(resource.Endpoints, ratings)
		holders := h.server.Holders(gone)
		require.Len(t, holders, 1)
		require.Equal(t, "app-1", holders[0].Name)
		require.Equal(t, ratings, holders[0].Cluster)
		require.Equal(t, "10.0.0.1", holders[0].Endpoint.Address)
		require.Equal(t, distribution.CauseUnanswered, holders[0].Reasons[0].Cause)
		require.False(t, h.server.OldestUnanswered().IsZero())
		back := []distribution.GoneEndpoint{{Revision: rev, Since: time.Now(), Hosts: []string{"ratings"}, Address: "10.0.0.2"}}
		require.Empty(t, h.server.Holders(back), "it is listed again")
		c.ack(r)
		h.eventually("the proxy has ACKed the removal", func() bool { return len(h.server.Holders(gone)) == 0 })
		h.eventually("the other proxy has answered", func() bool { return h.server.OldestUnanswered().IsZero() })

		// Another change is unanswered. The proxy has ACKed the removal before it.
		h.commit(addressesAt(ratings, "10.0.0.2", "10.0.0.3"))
		r = c.expect(resource.Endpoints, ratings)
		require.Empty(t, h.server.Holders(gone))
		c.nack(r, "no")
		h.eventually("the refusal is known", func() bool { p, _ := h.server.Proxy(nodeID); return len(p.Types[1].Held) == 1 })
		require.Empty(t, h.server.Holders(gone))
	})
}

// TestHoldersAcrossReconnects: a proxy that was away while an endpoint was removed holds it until
// it receives the change. A new proxy does not.
func TestHoldersAcrossReconnects(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		first := h.commit(edsCluster(ratings, "1"), addressesAt(ratings, "10.0.0.1", "10.0.0.2"))
		c := h.connect("")
		c.subscribe(resource.Cluster)
		c.take(resource.Cluster, ratings)
		c.subscribe(resource.Endpoints, ratings)
		c.take(resource.Endpoints, ratings)
		h.becomes(first, "app-1", distribution.StateACKed) // while nothing else is under way, what it has is known
		had := h.commit(edsCluster(ratings, "2"))          // sends the endpoints again
		c.take(resource.Cluster, ratings)
		h.becomes(had, "app-1", distribution.StateACKed)
		c.cancel()
		h.eventually("it has disconnected", func() bool { return len(h.server.Disconnected()) == 1 })
		rev := h.commit(addressesAt(ratings, "10.0.0.2"))
		gone := []distribution.GoneEndpoint{{Revision: rev, Since: time.Now(), Hosts: []string{"ratings"}, Address: "10.0.0.1"}}

		for _, tc := range []struct {
			id      string
			holders int
		}{{nodeID, 1}, {nodeOf("new"), 0}} {
			c := h.connectAs(tc.id, "")
			c.subscribe(resource.Cluster)
			c.take(resource.Cluster, ratings)
			c.subscribe(resource.Endpoints, ratings)
			r := c.expect(resource.Endpoints, ratings)
			require.Len(t, h.server.Holders(gone), tc.holders)
			c.ack(r)
			h.eventually("the proxy has the change", func() bool { return len(h.server.Holders(gone)) == 0 })
		}
	})
}

// TestHoldersBeforeTheyListTheirEndpoints: a proxy that connects again lists its clusters first. Until it lists its
// endpoints it may have any of them, and nothing is settled.
func TestHoldersBeforeTheyListTheirEndpoints(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		first := h.commit(edsCluster(ratings, "1"), addressesAt(ratings, "10.0.0.1", "10.0.0.2"))
		c := h.connect("")
		c.subscribe(resource.Cluster)
		c.take(resource.Cluster, ratings)
		c.subscribe(resource.Endpoints, ratings)
		c.take(resource.Endpoints, ratings)
		h.becomes(first, "app-1", distribution.StateACKed)
		had := has(h, resource.Endpoints, ratings)
		c.cancel()
		h.eventually("it has disconnected", func() bool { return len(h.server.Disconnected()) == 1 })
		rev := h.commit(addressesAt(ratings, "10.0.0.2"))
		gone := []distribution.GoneEndpoint{{Revision: rev, Since: time.Now(), Hosts: []string{"ratings"}, Address: "10.0.0.1"}}

		c = h.connect("")
		c.resume(resource.Cluster, has(h, resource.Cluster, ratings))
		h.eventually("it has connected", func() bool { return len(h.server.Disconnected()) == 0 })
		h.eventually("it may have the endpoint", func() bool { return len(h.server.Holders(gone)) == 1 })
		p, _ := h.server.Proxy(nodeID)
		require.Less(t, p.Settled, rev)
		c.resume(resource.Endpoints, had, ratings)
		r := c.expect(resource.Endpoints, ratings)
		require.Len(t, h.server.Holders(gone), 1)
		c.ack(r)
		h.eventually("it has the change", func() bool { return len(h.server.Holders(gone)) == 0 })
	})
}
