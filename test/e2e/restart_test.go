package e2e

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestRestart ends the control plane under traffic and starts it again. No call may fail, and only differences may be
// sent.
func TestRestart(t *testing.T) {
	for _, way := range ways[:3] { // state-of-the-world clients do not list their versions
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			restart(t, way.strategy)
		})
	}
}

func restart(t *testing.T, strategy server.RouteStrategy) {
	apps := []*app{startApp(t, "web", "v1"), startApp(t, "web", "v2")}
	c := newClient("client")
	m := startMesh(t, strategy, c.sidecar("./*"), service("web", apps[0]), service("other", apps...), routes("web", to("web")))
	c.start(t, m, false)
	calls := startTraffic(t, c, "web")
	calls.requireOnly("web-v1")
	_, err := get(http.DefaultClient, c.url(), "other", true) // with clusters on demand the sidecar has it from now on
	require.NoError(t, err)

	before := updates(t, c)
	require.NotEmpty(t, before)
	m.stop()
	calls.requireOnly("web-v1") // without a control plane
	m.start()
	awaitConnected(t, m, c)
	m.apply(c.sidecar("./*"), service("web", apps[0]), service("other", apps[1]), routes("web", to("web")))
	calls.requireOnly("web-v1")
	// One endpoint of one service was removed after the restart: the control plane must have sent only that.
	require.Equal(t, map[string]uint64{"cluster.outbound|15080||other.shop.svc.cluster.local;": 1}, difference(updates(t, c), before))

	before = updates(t, c)
	m.stop()
	m.write("mesh.yaml", c.sidecar("./*"), service("web", apps[1]), service("other", apps[1]), routes("web", to("web")))
	calls.requireOnly("web-v1") // no change was announced
	m.start()
	awaitConnected(t, m, c)
	eventually(t, "the change from before the restart is there", func() bool { return calls.take(20)["web-v2"] > 0 }, nil)
	calls.requireOnly("web-v2")
	require.Equal(t, map[string]uint64{"cluster.outbound|15080||web.shop.svc.cluster.local;": 1}, difference(updates(t, c), before))
	noRefusals(t, m, c)
}

func awaitConnected(t *testing.T, m *mesh, c *client) {
	t.Helper()
	eventually(t, "the sidecar is back", func() bool {
		p := m.proxy(c.name)
		return p != nil && settled(*p)
	}, func() string { return describe(m.proxies()) })
}

// settled reports whether a proxy that reconnected has subscribed to all its resources, and nothing is in flight.
func settled(p server.ProxyState) bool {
	asked := map[string]bool{}
	for _, s := range p.Types {
		if !s.InFlightSince.IsZero() || s.Waiting != "" {
			return false
		}
		asked[s.Type] = true
	}
	if slices.ContainsFunc(p.Tables, func(name string) bool { return strings.Contains(name, "/on-demand") }) {
		return asked["CDS"] && asked["LDS"] && asked["ODCDS"] // it asks for others when a request needs them
	}
	return asked["CDS"] && asked["EDS"] && asked["LDS"] && asked["RDS"] && (p.Strategy == server.RoutesRDS || asked["VHDS"]) &&
		(p.Strategy != server.RoutesScoped || asked["SRDS"])
}

// updates returns, for each subscription of an Envoy, the number of updates.
func updates(t *testing.T, c *client) map[string]uint64 {
	t.Helper()
	out := map[string]uint64{}
	for name, n := range c.stats(t, `update_success$`) {
		name = strings.TrimSuffix(name, ".update_success")
		name = strings.TrimSuffix(name, "update_success")
		if n > 0 {
			out[name] = n
		}
	}
	return out
}

func difference(now, before map[string]uint64) map[string]uint64 {
	out := maps.Clone(now)
	for name, n := range before {
		if out[name] -= n; out[name] == 0 {
			delete(out, name)
		}
	}
	return out
}
