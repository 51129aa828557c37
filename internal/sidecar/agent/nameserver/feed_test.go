package nameserver

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/xds/nametable"
	"github.com/moonsail/moonsail/test/await"
)

// plane is a control plane whose answers a test determines. It can cut streams.
type plane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	asked chan *discoveryv3.DeltaDiscoveryRequest
	says  chan *discoveryv3.DeltaDiscoveryResponse // nil: cut the stream
}

func (p *plane) DeltaAggregatedResources(s grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]) error {
	for {
		r, err := s.Recv()
		if err != nil {
			return err
		}
		p.asked <- r
		select {
		case m := <-p.says:
			if m == nil {
				return nil
			}
			if err := s.Send(m); err != nil {
				return err
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func table(name, version string, entry nametable.Entry) *discoveryv3.Resource {
	return &discoveryv3.Resource{Name: name, Version: version, Resource: &anypb.Any{TypeUrl: nametable.TypeURL, Value: nametable.Encode(entry)}}
}

func TestFeed(t *testing.T) {
	p := &plane{asked: make(chan *discoveryv3.DeltaDiscoveryRequest), says: make(chan *discoveryv3.DeltaDiscoveryResponse)}
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, p)
	serving := make(chan struct{})
	go func() { defer close(serving); _ = server.Serve(ln) }()
	names := NewTable("shop", "cluster.local", nil)
	feed := &Feed{
		Dial: func() (*grpc.ClientConn, error) {
			return grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		},
		Node: &corev3.Node{Id: "me"}, Table: names, Log: slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); feed.Run(ctx) }()
	t.Cleanup(func() { cancel(); await.From(t, ended); server.Stop(); await.From(t, serving) })

	first := await.From(t, p.asked)
	require.Equal(t, "me", first.Node.Id)
	require.Equal(t, nametable.TypeURL, first.TypeUrl)
	require.False(t, names.Loaded())
	p.says <- &discoveryv3.DeltaDiscoveryResponse{Nonce: "1", Resources: []*discoveryv3.Resource{
		table("a", "v1", nametable.Entry{Host: "a", Addresses: []string{"1.1.1.1"}}), table("b", "v1", nametable.Entry{Host: "b", Addresses: []string{"1.1.1.2"}}),
	}}
	require.Equal(t, "1", await.From(t, p.asked).ResponseNonce)
	require.Equal(t, 2, names.Len())
	await.To(t, p.says, &discoveryv3.DeltaDiscoveryResponse{Nonce: "2", RemovedResources: []string{"b"}, Resources: []*discoveryv3.Resource{{Name: "c", Resource: &anypb.Any{Value: []byte{10}}}}})
	refused := await.From(t, p.asked)
	require.Contains(t, refused.ErrorDetail.GetMessage(), "c: invalid name table")
	require.Equal(t, 2, names.Len(), "an invalid resource changes nothing")
	await.To(t, p.says, &discoveryv3.DeltaDiscoveryResponse{Nonce: "3", RemovedResources: []string{"b"}})
	require.Nil(t, await.From(t, p.asked).ErrorDetail)
	require.Equal(t, 1, names.Len())

	await.To(t, p.says, nil)
	again := await.From(t, p.asked)
	require.Equal(t, map[string]string{"a": "v1"}, again.InitialResourceVersions, "it lists its versions")
	require.Equal(t, 1, names.Len(), "and keeps the names meanwhile")
	require.Eventually(t, func() bool { return names.Loaded() }, time.Minute, time.Millisecond)
}
