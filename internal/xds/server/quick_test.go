package server

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// TestQuick: requests that may wait for the engine are not for an event loop.
func TestQuick(t *testing.T) {
	quick := func(p ledger.Protocol, bound bool, m proto.Message) bool {
		st := &stream{protocol: p}
		if bound {
			st.proxy = &model.Proxy{}
		}
		b, err := proto.Marshal(m)
		require.NoError(t, err)
		return pushed{st}.Quick(b)
	}
	ack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointsURL, ResponseNonce: "7", ResourceNamesSubscribe: []string{"a"}}
	require.True(t, quick(ledger.Delta, true, ack))
	require.False(t, quick(ledger.Delta, false, ack), "the first")
	has := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.ScopeURL, InitialResourceVersions: map[string]string{"a": "1"}}
	require.False(t, quick(ledger.Delta, true, has))
	require.True(t, quick(ledger.Sotw, true, &discoveryv3.DiscoveryRequest{TypeUrl: resource.ClusterURL, ResponseNonce: "7"}))
	require.False(t, pushed{&stream{proxy: &model.Proxy{}}}.Quick([]byte{0x1a, 0xff}), "malformed")
}
