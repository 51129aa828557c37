package server

import (
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// TestWhatIsInBucketsIsKept: a proxy that connects again has what it has in buckets kept, unless
// it is so anyway, or is no more.
func TestWhatIsInBucketsIsKept(t *testing.T) {
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{RouteStrategy: RoutesScoped})
		h.commit(append(append(routeConfig("80"), routeConfig("81")...), encode(resource.Scope, "81~2~0", &routev3.ScopedRouteConfiguration{Name: "81~2~0"}))...)
		c := h.connectAs(nodeID, "envoy")
		c.resume(resource.Cluster, map[string]string{"c": "1"})
		c.resume(resource.Scope, map[string]string{"80~2~0": "1", "80~2~1": "1", "81~2~0": "1", "82~2~0": "1"})
		h.eventually("it is kept", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.kept) > 0 })
		c.resume(resource.RouteConfigShell, map[string]string{"80": "1", "81~2~1": "1"}, "80", "81~2~1")
		h.eventually("so is the other", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.kept) > 1 })
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Equal(t, []string{"80", "81"}, h.kept)
	})
}
