package controlplane

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestLimitOfProxyGroups checks that an identity whose streams all differ is refused at its limit,
// with a reason and a count, and that others are not.
func TestLimitOfProxyGroups(t *testing.T) {
	overEach(t, func(t *testing.T, transport server.Transport) {
		p := startWithLimit(t, transport, 3)
		web := p.dial(p.must("web-token"))
		for i := range 2 { // each has a proxy group of its own
			require.NoError(t, holdStream(t, web, "web", i))
		}
		err := holdStream(t, web, "web", 2)
		requireStatus(t, err, codes.ResourceExhausted, "service account web in namespace shop", "--max-scopes-per-identity")
		require.NoError(t, holdStream(t, web, "web", 1), "that is one that there is")
		require.NoError(t, holdStream(t, p.dial(p.must("cart-token")), "cart", 9))
		resp, err := http.Get("http://" + p.http + "/metrics")
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		metrics, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Contains(t, string(metrics), "moonsail_scopes_refused_total 1\n")
	})
}

func startWithLimit(t *testing.T, transport server.Transport, limit int) *identityPlane {
	t.Helper()
	return startIdentities(t, t.TempDir()+"/ca", func(o *Options) { o.Transport, o.GroupsPerIdentity = transport, limit })
}

// holdStream opens a stream as a proxy with a label, and keeps it until the test ends.
func holdStream(t *testing.T, conn *grpc.ClientConn, account string, label int) error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	require.NoError(t, err)
	node := &core.Node{Id: fmt.Sprintf("sidecar~10.1.0.1~%s-%d.shop~shop.svc.cluster.local", account, label)}
	node.Metadata, err = structpb.NewStruct(map[string]any{"LABELS": map[string]any{"app": fmt.Sprint(label)}})
	require.NoError(t, err)
	_ = stream.Send(&discovery.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.Cluster.URL()}) // Recv has the error
	_, err = stream.Recv()
	return err
}
