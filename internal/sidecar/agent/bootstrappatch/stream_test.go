package bootstrappatch

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/logtext"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plane is a control plane that answers each request with the next response; nil: it cuts the stream.
type plane struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	asked chan *discoveryv3.DeltaDiscoveryRequest
	says  chan *discoveryv3.DeltaDiscoveryResponse
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

func startPlane(t *testing.T) (*plane, func(context.Context) (*grpc.ClientConn, error)) {
	p := &plane{asked: make(chan *discoveryv3.DeltaDiscoveryRequest, 1), says: make(chan *discoveryv3.DeltaDiscoveryResponse)}
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, p)
	serving := make(chan struct{})
	go func() { defer close(serving); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); await.From(t, serving) })
	return p, func(context.Context) (*grpc.ClientConn, error) {
		return grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
}

func change(t *testing.T, name, version string) *discoveryv3.Resource {
	packed, err := anypb.New(&bootstrapv3.Bootstrap{FlagsPath: name})
	require.NoError(t, err)
	return &discoveryv3.Resource{Name: name, Version: version, Resource: packed}
}

func says(nonce string, list ...*discoveryv3.Resource) *discoveryv3.DeltaDiscoveryResponse {
	return &discoveryv3.DeltaDiscoveryResponse{Nonce: nonce, Resources: list}
}

func TestTalk(t *testing.T) {
	p, dial := startPlane(t)
	log := &logtext.Buffer{}
	go func() {
		<-p.asked
		p.says <- nil // the agent reconnects
		<-p.asked
		p.says <- says("1", change(t, "0001/shop/b", "1"), change(t, "0000/shop/a", "1"), &discoveryv3.Resource{Name: "0002/shop/c", Version: "1", Resource: &anypb.Any{}})
	}()
	stream, all, err := Ask(await.Context(t), dial, &corev3.Node{Id: "me"}, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "shop/a", agentapi.BootstrapPatchFilter(all[0].Name))
	require.Equal(t, "0001/shop/b", all[1].Change.FlagsPath)
	require.True(t, stream.Settle(map[string]string{"0001/shop/b": "Envoy says no"}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); stream.Watch(ctx) }()
	t.Cleanup(func() { cancel(); await.From(t, done) })

	nack := await.From(t, p.asked).ErrorDetail.GetMessage()
	require.Contains(t, nack, "0001/shop/b: Envoy says no")
	require.Contains(t, nack, "0002/shop/c: ")
	await.To(t, p.says, says("2", change(t, "0000/shop/a", "2")))
	require.Nil(t, await.From(t, p.asked).ErrorDetail)
	require.Eventually(t, func() bool { return strings.Count(log.String(), "filters=[shop/a]") == 1 }, time.Minute, time.Millisecond)
	await.To(t, p.says, says("3", change(t, "0000/shop/a", "1")))
	await.From(t, p.asked)
	require.Eventually(t, func() bool { return strings.Count(log.String(), "matches the EnvoyFilters again") == 1 }, time.Minute, time.Millisecond)

	stream.Drop("it crashed")
	require.Empty(t, await.From(t, p.asked).InitialResourceVersions, "all used patches are requested again, to be NACKed")
	await.To(t, p.says, says("1", change(t, "0000/shop/a", "1")))
	require.Equal(t, "0000/shop/a: it crashed", await.From(t, p.asked).ErrorDetail.GetMessage())
	require.Equal(t, 1, strings.Count(log.String(), "restart the sidecar to apply"))
}

func TestNothingToAmend(t *testing.T) {
	p, dial := startPlane(t)
	go func() {
		<-p.asked
		p.says <- says("1")
	}()
	stream, all, err := Ask(await.Context(t), dial, &corev3.Node{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Empty(t, all)
	require.False(t, stream.Settle(nil), "no stream waits for Envoy")
}

// TestUnwatchedStreamIsClosed checks that no goroutine is left.
func TestUnwatchedStreamIsClosed(t *testing.T) {
	p, dial := startPlane(t)
	go func() {
		<-p.asked
		p.says <- says("1", change(t, "0000/shop/a", "1"))
	}()
	stream, all, err := Ask(await.Context(t), dial, &corev3.Node{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.Len(t, all, 1)
	stream.Close()
}

func TestAskHasAnEnd(t *testing.T) {
	_, dial := startPlane(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, _, err := Ask(ctx, dial, &corev3.Node{}, slog.New(slog.DiscardHandler))
	require.Error(t, err)
}
