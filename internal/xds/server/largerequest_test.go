package server

import (
	"crypto/tls"
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/await"
)

// manyServices is the request of a proxy with 20,000 services that connects again, for one type.
func manyServices(t resource.Type) *discoveryv3.DeltaDiscoveryRequest {
	r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL(), InitialResourceVersions: map[string]string{}}
	for i := range 20_000 {
		name := fmt.Sprintf("outbound|8080|version-1|some-service-with-a-name-%d.namespace-of-it.svc.cluster.local", i)
		r.InitialResourceVersions[name] = "0123456789abcdef"
		if t == resource.Endpoints {
			r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, name)
		}
	}
	return r
}

// TestLargeRequests: the first requests of a proxy in a large mesh are accepted with a certificate
// of the mesh, one type after the other. Without a certificate they are refused when they begin,
// and small requests are handled as usual.
func TestLargeRequests(t *testing.T) {
	certificate, pool := pair(t)
	h := newHarness(t, TransportHTTP2, Options{})
	port := Port{
		TLS: &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12},
		Authorize: func(peer *Peer, _ *model.Proxy) error {
			if len(peer.Certificates) == 0 {
				return Unauthenticated("who is it?")
			}
			return nil
		},
	}
	node := &corev3.Node{Id: nodeID}
	open := func(conn *grpc.ClientConn, first *discoveryv3.DeltaDiscoveryRequest) grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse] {
		st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(await.Context(t))
		require.NoError(t, err)
		first.Node = node
		require.NoError(t, st.Send(first))
		return st
	}
	h.commit(edsCluster("a", "1"), endpoints("a", "1"))
	client := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	stranger := h.serveAt(TransportHTTP2, port, client)
	for want, first := range map[codes.Code]*discoveryv3.DeltaDiscoveryRequest{
		codes.ResourceExhausted: manyServices(resource.Cluster),
		codes.Unauthenticated:   {TypeUrl: resource.Cluster.URL()},
	} {
		_, err := open(stranger, first).Recv()
		require.Equal(t, want, status.Code(err), "%v", err)
	}

	client = client.Clone()
	client.Certificates = []tls.Certificate{certificate}
	st := open(h.serveAt(TransportHTTP2, port, client), manyServices(resource.Cluster))
	require.Greater(t, proto.Size(manyServices(resource.Endpoints)), 3<<20)
	second := manyServices(resource.Endpoints)
	second.ResourceNamesSubscribe = append(second.ResourceNamesSubscribe, "a")
	require.NoError(t, st.Send(second))
	for range 2 {
		r, err := st.Recv()
		require.NoError(t, err)
		require.Len(t, r.Resources, 1)
	}
}
