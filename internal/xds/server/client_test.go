package server

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// client is a delta stream that the test drives.
type client struct {
	t      *testing.T
	h      *harness
	probes int
	stream deltaStream
	cancel context.CancelFunc
	got    chan *discoveryv3.DeltaDiscoveryResponse
	ended  chan error
	node   *corev3.Node
	read   chan struct{} // it reads nothing before this is closed
}

const nodeID = "sidecar~10.0.0.1~app-1.shop~shop.svc.cluster.local"

func (h *harness) connect(agent string) *client { return h.connectAs(nodeID, agent) }

func (h *harness) connectAs(id, agent string) *client {
	c := h.connectPaused(id, agent)
	close(c.read)
	return c
}

// connectPaused connects a client that does not read until its channel read is closed.
func (h *harness) connectPaused(id, agent string) *client {
	return h.connectBy(id, agent, func(ctx context.Context, conn *grpc.ClientConn) (deltaStream, error) {
		return discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	})
}

// deltaStream is a stream of any service.
type deltaStream interface {
	Send(*discoveryv3.DeltaDiscoveryRequest) error
	SendMsg(any) error
	CloseSend() error
	Recv() (*discoveryv3.DeltaDiscoveryResponse, error)
}

// connectBy is connectPaused with a method of a service.
func (h *harness) connectBy(id, agent string, open func(context.Context, *grpc.ClientConn) (deltaStream, error)) *client {
	conn, err := grpc.NewClient("passthrough:///"+h.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(1<<16), grpc.WithInitialConnWindowSize(1<<16))
	require.NoError(h.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := open(ctx, conn)
	require.NoError(h.t, err)
	c := &client{t: h.t, h: h, stream: stream, got: make(chan *discoveryv3.DeltaDiscoveryResponse), ended: make(chan error, 1),
		node: &corev3.Node{Id: id, UserAgentName: agent}, read: make(chan struct{})}
	done := make(chan struct{})
	c.cancel = func() { cancel(); <-done; _ = conn.Close() }
	go func() {
		defer close(done)
		select {
		case <-c.read:
		case <-ctx.Done():
			return
		}
		for {
			r, err := stream.Recv()
			if err != nil {
				c.ended <- err
				return
			}
			select {
			case c.got <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	h.t.Cleanup(c.cancel)
	return c
}

func (c *client) send(r *discoveryv3.DeltaDiscoveryRequest) {
	c.t.Helper()
	r.Node, c.node = c.node, nil
	require.NoError(c.t, c.stream.Send(r))
}

func (c *client) subscribe(t resource.Type, names ...string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL(), ResourceNamesSubscribe: names})
}

func (c *client) ack(r *discoveryv3.DeltaDiscoveryResponse) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce})
}

func (c *client) nack(r *discoveryv3.DeltaDiscoveryResponse, message string) {
	c.t.Helper()
	c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce, ErrorDetail: &status.Status{Code: 13, Message: message}})
}

// expect receives a response of a type with exactly these resources; "-name" is a removed one.
func (c *client) expect(t resource.Type, names ...string) *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	select {
	case r := <-c.got:
		require.Equal(c.t, t.URL(), r.TypeUrl, "got %v", listed(r))
		require.ElementsMatch(c.t, names, listed(r))
		return r
	case err := <-c.ended:
		c.t.Fatalf("the stream has ended: %v", err)
	case <-time.After(testTimeout):
		c.t.Fatalf("no %s response", t)
	}
	return nil
}

// take is expect and ack.
func (c *client) take(t resource.Type, names ...string) *discoveryv3.DeltaDiscoveryResponse {
	c.t.Helper()
	r := c.expect(t, names...)
	c.ack(r)
	return r
}

// quiet asserts that nothing is sent. It changes endpoints, which never wait, and the next response
// must contain these.
func (c *client) quiet() {
	c.t.Helper()
	c.probes++
	c.h.commit(endpoints("probe", fmt.Sprint(c.probes)))
	if c.probes == 1 {
		c.subscribe(resource.Endpoints, "probe")
	}
	c.take(resource.Endpoints, "probe")
}

func listed(r *discoveryv3.DeltaDiscoveryResponse) (out []string) {
	for _, res := range r.Resources {
		out = append(out, res.Name)
	}
	for _, n := range r.RemovedResources {
		out = append(out, "-"+n)
	}
	return out
}

// warm gives a client one cluster, its endpoints and one listener.
func (h *harness) warm(agent string) *client {
	h.t.Helper()
	h.commit(edsCluster("c1", "1"), endpoints("c1", "1"), listener("l1", "1"))
	c := h.connect(agent)
	c.subscribe(resource.Cluster)
	c.take(resource.Cluster, "c1")
	c.subscribe(resource.Endpoints, "c1")
	c.take(resource.Endpoints, "c1")
	c.subscribe(resource.Listener)
	c.take(resource.Listener, "l1")
	return c
}
