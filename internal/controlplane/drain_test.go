package controlplane

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/await"
)

const podsYAML = `
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {clusterIP: 10.0.0.1, selector: {app: cart}, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: cart-1, namespace: shop, labels: {app: cart}}
status: {podIP: 10.1.1.1, phase: Running, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: cart-2, namespace: shop, labels: {app: cart}}
status: {podIP: 10.1.1.2, phase: Running, conditions: [{type: Ready, status: "True"}]}
`

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)   { return json.Marshal(v) }
func (jsonCodec) Unmarshal(b []byte, v any) error { return json.Unmarshal(b, v) }
func (jsonCodec) Name() string                    { return "json" }

// TestLeave deregisters a workload as its sidecar does: the answer comes with the ACK of the last proxy,
// and not before.
func TestLeave(t *testing.T) {
	for _, transport := range []server.Transport{server.TransportGRPC, server.TransportHTTP2} {
		t.Run(string(transport), func(t *testing.T) { leave(t, transport) })
	}
}

func leave(t *testing.T, transport server.Transport) {
	o := options(t)
	o.Transport, o.Absence = transport, time.Nanosecond
	require.NoError(t, os.WriteFile(filepath.Join(o.ConfigDir, "shop.yaml"), []byte(podsYAML), 0o600))
	p := start(t, o)
	stream := subscribe(t, p.xds)
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: resource.Endpoints.URL(), ResourceNamesSubscribe: []string{"outbound|80||cart.shop.svc.cluster.local"},
	}))
	next := func() (*discovery.DeltaDiscoveryResponse, []string) {
		r, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, resource.Endpoints.URL(), r.TypeUrl)
		return r, addressesIn(t, r)
	}
	ack := func(r *discovery.DeltaDiscoveryResponse) {
		require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.TypeUrl, ResponseNonce: r.Nonce}))
	}
	ack(&discovery.DeltaDiscoveryResponse{TypeUrl: resource.Cluster.URL(), Nonce: "1"})
	r, have := next()
	require.ElementsMatch(t, []string{"10.1.1.1", "10.1.1.2"}, have)
	ack(r)

	conn, err := grpc.NewClient(p.xds, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(jsonCodec{})))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	call := func(q agentapi.DeregisterRequest) (a agentapi.DeregisterResponse, err error) {
		err = conn.Invoke(await.Context(t), agentapi.DeregisterMethod, &q, &a)
		return a, err
	}
	cart := agentapi.DeregisterRequest{Node: "sidecar~10.1.1.1~cart-1.shop~shop.svc.cluster.local", Instance: "x"}
	answers := make(chan agentapi.DeregisterResponse, 1)
	go func() {
		a, _ := call(cart)
		answers <- a
	}()
	r, have = next()
	require.Equal(t, []string{"10.1.1.2"}, have)
	require.Empty(t, answers, "the proxy has it and has not ACKed it")
	ack(r)
	a := await.From(t, answers)
	require.Equal(t, 1, a.ACKed)
	require.Empty(t, a.Lacking)

	cart.Stay = true
	_, err = call(cart)
	require.NoError(t, err)
	_, have = next()
	require.ElementsMatch(t, []string{"10.1.1.1", "10.1.1.2"}, have, "it stays after all")
	cart.Stay, cart.WaitMillis = false, 50
	a, err = call(cart) // the proxy has not answered the last response
	require.NoError(t, err)
	require.Len(t, a.Lacking, 1)
	require.Equal(t, "web-1.shop", a.Lacking[0].Proxy)
	require.Equal(t, string(distribution.StateBehind), a.Lacking[0].Position)

	_, err = call(agentapi.DeregisterRequest{Node: "invalid"})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.NoError(t, p.end(t))
	_, err = call(cart)
	require.Equal(t, codes.Unavailable, status.Code(err))
}

func addressesIn(t *testing.T, r *discovery.DeltaDiscoveryResponse) []string {
	t.Helper()
	var out []string
	for _, res := range r.Resources {
		a := &endpoint.ClusterLoadAssignment{}
		require.NoError(t, res.Resource.UnmarshalTo(a))
		for _, l := range a.Endpoints {
			for _, e := range l.LbEndpoints {
				if e.HealthStatus == core.HealthStatus_UNKNOWN || e.HealthStatus == core.HealthStatus_HEALTHY {
					out = append(out, e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
				}
			}
		}
	}
	return out
}
