package agent

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// silent is a control plane that answers once, and sends nothing more.
type silent struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
}

func (silent) DeltaAggregatedResources(s grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]) error {
	if err := s.Send(&discoveryv3.DeltaDiscoveryResponse{Nonce: "1"}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

// vanishing is a connection that can vanish without a FIN: it then delivers nothing, and no error.
type vanishing struct {
	net.Conn
	gone   *atomic.Bool
	once   sync.Once // closes closed
	closed chan struct{}
}

func (v *vanishing) Read(b []byte) (int, error) {
	n, err := v.Conn.Read(b)
	if v.gone.Load() {
		<-v.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (v *vanishing) Close() error {
	v.once.Do(func() { close(v.closed) })
	return v.Conn.Close()
}

// TestNoticesAVanishedControlPlane checks the keepalive of streams, which often only receive.
func TestNoticesAVanishedControlPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := bufconn.Listen(1 << 16)
		server := grpc.NewServer()
		discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, silent{})
		go func() { _ = server.Serve(ln) }()
		defer server.Stop()
		gone := &atomic.Bool{}
		dial := func(ctx context.Context, _ string) (net.Conn, error) {
			c, err := ln.DialContext(ctx)
			return &vanishing{Conn: c, gone: gone, closed: make(chan struct{})}, err
		}
		conn, err := grpc.NewClient("passthrough:///plane", append(streamOptions(), grpc.WithContextDialer(dial),
			grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
		gone.Store(true)
		_, err = stream.Recv()
		require.Equal(t, codes.Unavailable, status.Code(err))
	})
}
