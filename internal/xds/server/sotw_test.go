package server

import (
	"context"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/await"
)

// sotwClient is a state-of-the-world stream that the test drives.
type sotwClient struct {
	t      *testing.T
	stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	got    chan *discoveryv3.DiscoveryResponse
	node   *corev3.Node
}

func (h *harness) connectSotw() *sotwClient {
	conn, err := grpc.NewClient("passthrough:///"+h.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	require.NoError(h.t, err)
	c := &sotwClient{t: h.t, stream: stream, got: make(chan *discoveryv3.DiscoveryResponse), node: &corev3.Node{Id: nodeID, UserAgentName: "envoy"}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case c.got <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	h.t.Cleanup(func() { cancel(); await.From(h.t, done); _ = conn.Close() })
	return c
}

func (c *sotwClient) request(t resource.Type, after *discoveryv3.DiscoveryResponse, names ...string) {
	c.t.Helper()
	r := &discoveryv3.DiscoveryRequest{Node: c.node, TypeUrl: t.URL(), ResourceNames: names}
	c.node = nil
	if after != nil {
		r.ResponseNonce, r.VersionInfo = after.Nonce, after.VersionInfo
	}
	require.NoError(c.t, c.stream.Send(r))
}

func (c *sotwClient) nack(t resource.Type, of *discoveryv3.DiscoveryResponse, names ...string) {
	c.t.Helper()
	require.NoError(c.t, c.stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: t.URL(), ResourceNames: names,
		ResponseNonce: of.Nonce, ErrorDetail: &status.Status{Code: 13, Message: "no"}}))
}

func (c *sotwClient) expect(t resource.Type, names ...string) *discoveryv3.DiscoveryResponse {
	c.t.Helper()
	select {
	case r := <-c.got:
		require.Equal(c.t, t.URL(), r.TypeUrl)
		require.ElementsMatch(c.t, names, sotwNames(c.t, r))
		return r
	case <-time.After(testTimeout):
		c.t.Fatalf("no %s response", t)
	}
	return nil
}

func sotwNames(t *testing.T, r *discoveryv3.DiscoveryResponse) (out []string) {
	for _, a := range r.Resources {
		m, err := a.UnmarshalNew()
		require.NoError(t, err)
		switch m := m.(type) {
		case *clusterv3.Cluster:
			out = append(out, m.Name)
		case *endpointv3.ClusterLoadAssignment:
			out = append(out, m.ClusterName)
		case *listenerv3.Listener:
			out = append(out, m.Name)
		case *routev3.RouteConfiguration:
			out = append(out, m.Name)
		}
	}
	return out
}

// warmSotw gives a stream one cluster, its endpoints, and one listener.
func (h *harness) warmSotw() (c *sotwClient, last map[resource.Type]*discoveryv3.DiscoveryResponse) {
	h.t.Helper()
	h.commit(edsCluster("c1", "1"), endpoints("c1", "1"), listener("l1", "1"))
	c, last = h.connectSotw(), map[resource.Type]*discoveryv3.DiscoveryResponse{}
	c.request(resource.Cluster, nil)
	last[resource.Cluster] = c.expect(resource.Cluster, "c1")
	c.request(resource.Cluster, last[resource.Cluster])
	c.request(resource.Endpoints, nil, "c1")
	last[resource.Endpoints] = c.expect(resource.Endpoints, "c1")
	c.request(resource.Endpoints, last[resource.Endpoints], "c1")
	c.request(resource.Listener, nil)
	last[resource.Listener] = c.expect(resource.Listener, "l1")
	c.request(resource.Listener, last[resource.Listener])
	return c, last
}

func TestSotwResponses(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c, last := h.warmSotw()
		h.commit(endpoints("c1", "2"), endpoints("not asked for", "1"))
		last[resource.Endpoints] = c.expect(resource.Endpoints, "c1")
		c.request(resource.Endpoints, last[resource.Endpoints], "c1")

		h.commit(listener("l2", "1"))
		l := c.expect(resource.Listener, "l1", "l2")
		require.NotEqual(t, last[resource.Listener].VersionInfo, l.VersionInfo)
		c.request(resource.Listener, l)

		h.commit(append(routeConfig("80"), virtualHost("80/a", "c1"))...)
		c.request(resource.RouteConfig, nil, "80", "later")
		r := c.expect(resource.RouteConfig, "80")
		c.request(resource.RouteConfig, r, "80", "later")
		h.commit(routeConfig("later")...)
		c.expect(resource.RouteConfig, "later")
	})
}

// TestSotwVersionsDependOnContent: equal content has equal versions on every control plane. A new
// stream is sent everything even if its version is equal: a proxy that refused a response may have more
// or less than the content of its version.
func TestSotwVersionsDependOnContent(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		_, last := h.warmSotw()
		c := h.connectSotw()
		c.request(resource.Cluster, &discoveryv3.DiscoveryResponse{VersionInfo: last[resource.Cluster].VersionInfo})
		require.Equal(t, last[resource.Cluster].VersionInfo, c.expect(resource.Cluster, "c1").VersionInfo)
		c.request(resource.Endpoints, &discoveryv3.DiscoveryResponse{VersionInfo: last[resource.Endpoints].VersionInfo}, "c1")
		require.Equal(t, last[resource.Endpoints].VersionInfo, c.expect(resource.Endpoints, "c1").VersionInfo)
	})
}

func TestSotwKeepsClustersInUse(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c, last := h.warmSotw()
		h.commit(remove(resource.Cluster, "c1"), remove(resource.Endpoints, "c1"), listener("l1", "without c1"), edsCluster("c2", "1"), endpoints("c2", "1"))
		r := c.expect(resource.Cluster, "c1", "c2")
		c.request(resource.Cluster, r)
		c.request(resource.Endpoints, last[resource.Endpoints], "c1", "c2")
		e := c.expect(resource.Endpoints, "c2")
		c.request(resource.Endpoints, e, "c1", "c2")
		l := c.expect(resource.Listener, "l1")
		c.request(resource.Listener, l)
		c.expect(resource.Cluster, "c2")
	})
}

func TestSotwNACKWaitsForAChange(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c, _ := h.warmSotw()
		rev := h.commit(listener("l1", "bad"))
		c.nack(resource.Listener, c.expect(resource.Listener, "l1"))
		h.eventually("it is settled", func() bool { return h.observer.outcomes(rev)[distribution.NACKed] == 1 })
		p, _ := h.server.Proxy(nodeID)
		require.Equal(t, "sotw", p.Protocol)
		require.Len(t, p.Types[2].Held, 1)
		h.commit(listener("l1", "good"))
		l := c.expect(resource.Listener, "l1")
		c.request(resource.Listener, l)
		h.eventually("nothing is held", func() bool { p, _ := h.server.Proxy(nodeID); return len(p.Types[2].Held) == 0 })
	})
}

func TestSotwIgnoresStaleNonces(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c, last := h.warmSotw()
		h.commit(listener("l1", "2"))
		now := c.expect(resource.Listener, "l1")
		h.commit(listener("l1", "3"))
		c.request(resource.Listener, last[resource.Listener]) // answers an older response
		h.commit(endpoints("c1", "2"))
		c.expect(resource.Endpoints, "c1")
		c.request(resource.Listener, now)
		c.expect(resource.Listener, "l1")
	})
}
