package server

import (
	"encoding/json"
	"fmt"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/await"
)

// has returns what a client that connects again lists.
func has(h *harness, t resource.Type, names ...string) map[string]string {
	out := map[string]string{}
	for _, n := range names {
		if e := h.out.State().Get(t, n); e != nil {
			out[n] = e.Version
		} else {
			out[n] = "of another time"
		}
	}
	return out
}

func (c *client) resume(t resource.Type, initial map[string]string, names ...string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL(), ResourceNamesSubscribe: names, InitialResourceVersions: initial})
}

func TestReconnectSendsOnlyDifferences(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		h.warm("").cancel()
		c := h.connect("")
		c.resume(resource.Cluster, has(h, resource.Cluster, "c1"))
		c.resume(resource.Endpoints, has(h, resource.Endpoints, "c1"), "c1")
		c.resume(resource.Listener, has(h, resource.Listener, "l1"))
		c.quiet()
		h.commit(listener("l1", "2"))
		c.take(resource.Listener, "l1")
	})
}

func TestReconnectAfterChanges(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		h.warm("").cancel()
		h.commit(edsCluster("c2", "1"), endpoints("c2", "1"), listener("l2", "1"), remove(resource.Listener, "l1"),
			remove(resource.Cluster, "c1"), remove(resource.Endpoints, "c1"), endpoints("c3", "1"))
		c := h.connect("")
		c.resume(resource.Cluster, has(h, resource.Cluster, "c1"))
		r := c.expect(resource.Cluster, "c2")
		c.resume(resource.Endpoints, has(h, resource.Endpoints, "c1"), "c1")
		c.resume(resource.Listener, has(h, resource.Listener, "l1"))
		c.expectRemovedListener()
		c.ack(r)
		c.subscribe(resource.Endpoints, "c2")
		c.take(resource.Endpoints, "c2")
		c.take(resource.Listener, "l2")
		c.subscribe(resource.RouteConfig) // now it has listed its routes too: none
		c.take(resource.Cluster, "-c1")
	})
}

// expectRemovedListener expects the removal of l1, which does not wait for clusters.
func (c *client) expectRemovedListener() {
	c.t.Helper()
	c.take(resource.Listener, "-l1")
}

func TestResubscribedNameIsSentAgain(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		c.subscribe(resource.Endpoints, "c1")
		c.take(resource.Endpoints, "c1")
	})
}

func TestMissingNamesBlockNothing(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		c.subscribe(resource.Endpoints, "later")
		c.take(resource.Endpoints, "-later")
		h.commit(endpoints("c1", "2"), endpoints("later", "1"), endpoints("never subscribed", "1"))
		c.take(resource.Endpoints, "c1", "later")
	})
}

// onConnected is called for a stream before its first request is handled.
type onConnected struct {
	unmetered
	call func()
}

func (m *onConnected) Connected(_ string, delta int) {
	if delta > 0 {
		m.call()
	}
}

// TestNewProxyHasEmptyLists checks that a proxy without subscriptions has lists in JSON, which readers go through.
func TestNewProxyHasEmptyLists(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		listed, meter := make(chan string, 1), &onConnected{}
		h := newHarness(t, on, Options{Meter: meter})
		meter.call = func() {
			b, err := json.Marshal(h.server.Proxies())
			listed <- fmt.Sprint(string(b), err)
		}
		h.connect("").subscribe(resource.Cluster)
		require.Contains(t, await.From(t, listed), `"types":[]`)
	})
}

func TestProxiesListsBothStreams(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		h.warm("")
		c := h.connect("")
		c.subscribe(resource.Cluster)
		c.take(resource.Cluster, "c1")
		require.Len(t, h.server.Proxies(), 2)
		p, ok := h.server.Proxy(nodeID)
		require.True(t, ok)
		require.Equal(t, uint64(2), p.Stream, "the newest")
		require.Equal(t, []string{"out", "in"}, p.Tables)
		p, ok = h.server.Proxy("app-1")
		require.True(t, ok, "its name is enough")
		require.Equal(t, nodeID, p.ID)
		other := h.connectAs("sidecar~10.0.0.2~app-1.other~other.svc.cluster.local", "")
		other.subscribe(resource.Cluster)
		other.take(resource.Cluster, "c1")
		_, ok = h.server.Proxy("app-1")
		require.False(t, ok, "two have that name")
		_, ok = h.server.Proxy("unknown.nowhere")
		require.False(t, ok)
	})
}
