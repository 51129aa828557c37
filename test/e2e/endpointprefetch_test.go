package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestNewServiceInOneTrip has a control plane hear nothing of a proxy while it gets a service
// that it has never heard of, and a route to it: cluster, endpoints and route come in one go
// and are in use. Once the proxy is heard, its subscription is answered by nothing.
func TestNewServiceInOneTrip(t *testing.T) {
	t.Parallel()
	web, other := startApp(t, "web", "v1"), startApp(t, "other", "v1")
	c := newClient("client")
	base := []string{c.sidecar("./*"), service("web", web)}
	m := startMesh(t, server.RoutesAuto, base...)
	var hold sync.RWMutex // locked: the control plane hears nothing
	c.startAt(t, m, fmt.Sprintf("127.0.0.1:%d", heldRelay(t, m.xds, &hold)), false)
	calls := startTraffic(t, c, "web")

	base = append(base, service("first", startApp(t, "first", "v1"))) // shows that the proxy looks for endpoints at once
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

// endpointsPushed is the number of EDS responses ever.
func endpointsPushed(m *mesh) (n int) {
	m.t.Helper()
	const sample = `pilot_xds_pushes{type="eds"} `
	_, after, found := strings.Cut(m.page("/metrics"), sample)
	require.True(m.t, found)
	_, err := fmt.Sscan(after, &n)
	require.NoError(m.t, err)
	return n
}
