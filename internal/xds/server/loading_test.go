package server

import (
	"context"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/test/await"
)

// TestGoneWhileLoading: a proxy that leaves while its tables are computed leaves nothing behind.
func TestGoneWhileLoading(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		h.loading = make(chan context.Context)
		c := h.connect("")
		require.NoError(t, c.stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: c.node, TypeUrl: resource.ClusterURL}))
		present := await.From(t, h.loading)
		require.NoError(t, present.Err())
		c.cancel()
		await.From(t, present.Done())
	})
}
