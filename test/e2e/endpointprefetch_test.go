package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestNewServiceTakesOneRoundTrip blocks a proxy's messages to the control plane while the mesh gets a new service and a route
// to it. Cluster, endpoints and route must arrive together and be in use. When the subscription arrives, the control
// plane must not answer it.
func TestNewServiceTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	web, other := startApp(t, "web", "v1"), startApp(t, "other", "v1")
	c := newClient("client")
	base := []string{c.sidecar("./*"), service("web", web)}
	m := startMesh(t, server.RoutesAuto, base...)
	var hold sync.RWMutex // locked: the control plane receives nothing
	c.startAt(t, m, fmt.Sprintf("127.0.0.1:%d", heldRelay(t, m.xds, &hold)), false)
	calls := startTraffic(t, c, "web")

	base = append(base, service("first", startApp(t, "first", "v1"))) // shows that the proxy subscribes to endpoints at once
	m.apply(base...)
	before, pushed := m.newest().Revision, endpointsPushed(m)
	hold.Lock()
	hear := sync.OnceFunc(hold.Unlock)
	defer hear()
	m.write("mesh.yaml", append(base, service("second", other), routes("web", to("second")))...)
	eventually(t, "all calls go to the new service", func() bool {
		got := calls.take(40)
		return len(got) == 1 && got["other-v1"] > 0
	}, nil)
	hear()
	m.awaitChange(before)

	if n := endpointsPushed(m) - pushed; n != 1 {
		t.Errorf("%d responses with endpoints, want one", n)
	}
	noRefusals(t, m, c)
}

// endpointsPushed returns the number of EDS responses so far.
func endpointsPushed(m *mesh) (n int) {
	m.t.Helper()
	const sample = `pilot_xds_pushes{type="eds"} `
	_, after, found := strings.Cut(m.page("/metrics"), sample)
	require.True(m.t, found)
	_, err := fmt.Sscan(after, &n)
	require.NoError(m.t, err)
	return n
}
