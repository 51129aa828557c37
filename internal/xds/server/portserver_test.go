package server

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/await"
)

// TestGracefulStopOfPortServers: streams end with a status and not with a broken connection, calls in progress
// are answered, and the client connects to the next server at once.
func TestGracefulStopOfPortServers(t *testing.T) { overEach(t, portServerLeaves) }

func portServerLeaves(t *testing.T, on Transport) {
	held, answer := make(chan struct{}), make(chan struct{})
	h := newHarness(t, on, Options{Methods: map[string]Unary{
		"/t.S/Hold": func(context.Context, []byte) ([]byte, error) { close(held); <-answer; return []byte("done"), nil },
	}})
	finish := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(finish) // otherwise the harness waits for the call if a check below fails
	h.commit(edsCluster("a", "1"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	first, served := h.servePort(on, Port{}, l)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	open := func() grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse] {
		st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(await.Context(t), grpc.WaitForReady(true))
		require.NoError(t, err)
		require.NoError(t, st.Send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: nodeID}, TypeUrl: resource.Cluster.URL()}))
		_, err = st.Recv()
		require.NoError(t, err)
		return st
	}
	st := open()
	called := make(chan error, 1)
	go func() {
		_, err := call(t.Context(), conn, "/t.S/Hold", "")
		called <- err
	}()
	await.From(t, held)

	stopped := make(chan struct{})
	go func() { defer close(stopped); first.GracefulStop(context.Background()) }()
	_, err = st.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	require.Equal(t, status.Convert(ending).Message(), status.Convert(err).Message())
	again, err := net.Listen("tcp", l.Addr().String())
	require.NoError(t, err)
	second, servedAgain := h.servePort(on, Port{}, again)
	st = open()
	finish()
	require.NoError(t, await.From(t, called))
	await.From(t, stopped)
	await.From(t, served)

	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	second.GracefulStop(ctx) // no time is left
	_, err = st.Recv()
	require.Error(t, err)
	await.From(t, servedAgain)
}

// TestHalfClose: a stream that its client ends has status OK.
func TestHalfClose(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		require.NoError(t, c.stream.CloseSend())
		require.ErrorIs(t, await.From(t, c.ended), io.EOF)
	})
}

// servePort serves a harness's server at a listener. The channel is closed when that ends.
func (h *harness) servePort(on Transport, port Port, l net.Listener) (PortServer, chan struct{}) {
	server, done := h.server.NewPortServer(on, port), make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	return server, done
}
