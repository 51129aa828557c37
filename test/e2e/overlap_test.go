package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestRouteShardsAreKept splits the routes of an Envoy, and removes the reasons for it: the number of hosts, by the mesh
// and by the Sidecar; another Sidecar; a filter that needs them whole; and a control plane that knows the past. Earlier
// connections stay with the draining listener, and their calls continue with the current routes. No call may fail.
func TestRouteShardsAreKept(t *testing.T) {
	t.Parallel()
	c := newClient("client")
	c.drain = time.Hour // whatever is left alone stays
	_, size := growing(t, c)
	const from = 8
	narrow := func(docs ...string) []string {
		return append([]string{c.sidecar("./web.shop.svc.cluster.local", "./other.shop.svc.cluster.local")}, size(2*from, docs...)[1:]...)
	}
	renamed := func(docs ...string) []string {
		return append([]string{strings.Replace(c.sidecar("./*"), "{name: client,", "{name: another,", 1)}, size(4, docs...)[1:]...)
	}
	filtered := func(docs ...string) []string { return renamed(append(docs, changesHost)...) }
	require.NotEqual(t, routeshard.Of("web", 4), routeshard.Of("other", 4))

	m := startMeshSplit(t, server.RoutesAuto, from, size(from-1)...)
	c.start(t, m, false)
	require.Equal(t, server.RoutesVHDS, m.proxy(c.name).Strategy)
	require.NotContains(t, c.dump(t).holdings, "LDS "+routeshard.Listener)
	calls := startTraffic(t, c, "web")
	for _, step := range []struct {
		name     string
		docs     func(...string) []string
		replaced bool // the listener
		restart  bool
	}{
		{name: "split", docs: func(docs ...string) []string { return size(2*from, docs...) }, replaced: true},
		{name: "fewer hosts", docs: func(docs ...string) []string { return size(4, docs...) }},
		{name: "more hosts", docs: func(docs ...string) []string { return size(3*from, docs...) }},
		{name: "narrower Sidecar", docs: narrow},
		{name: "another Sidecar", docs: renamed},
		{name: "restart", docs: renamed, restart: true},
		{name: "filter that may change hosts", docs: filtered, replaced: true},
		{name: "restart with it", docs: filtered, restart: true},
		{name: "no filter", docs: renamed, replaced: true},
	} {
		t.Run(step.name, func(t *testing.T) {
			held, draining := holdConnections(t, c.url(), "web"), chainsDraining(t, c)
			if step.restart {
				m.stop()
				m.start()
				awaitConnected(t, m, c)
			} else {
				m.apply(step.docs()...)
			}
			replaced := chainsDraining(t, c) > draining
			held.await("web-v1")
			m.apply(step.docs(routes("web", to("other")))...)
			calls.requireOnly("other-v1")
			held.await("other-v1")
			m.apply(step.docs()...)
			calls.requireOnly("web-v1")
			held.await("web-v1")
			require.Equal(t, step.replaced, replaced, "its listener was replaced")
			require.Equal(t, server.RoutesScoped, m.proxy(c.name).Strategy)
			requireHostChanges(t, c, strings.Contains(strings.Join(step.docs(), ""), changesHost))
		})
	}
	noRefusals(t, m, c)
}

// TestSidecarWidens moves a proxy from a Sidecar with few hosts to one whose routes are split. Earlier connections must
// continue with all routes.
func TestSidecarWidens(t *testing.T) {
	t.Parallel()
	c := newClient("client")
	c.drain = time.Hour
	_, size := growing(t, c)
	const from = 8
	narrow := strings.Replace(c.sidecar("./web.shop.svc.cluster.local", "./other.shop.svc.cluster.local"), "{name: client,", "{name: narrow,", 1)
	m := startMeshSplit(t, server.RoutesAuto, from, append(size(2 * from)[1:], narrow)...)
	c.start(t, m, false)
	require.Equal(t, server.RoutesVHDS, m.proxy(c.name).Strategy)
	calls, held := startTraffic(t, c, "web"), holdConnections(t, c.url(), "web")
	m.apply(size(2 * from)...)
	require.NotZero(t, chainsDraining(t, c), "its listener was replaced")
	require.Equal(t, server.RoutesScoped, m.proxy(c.name).Strategy)
	held.await("web-v1")
	m.apply(size(2*from, routes("web", to("other")))...)
	calls.requireOnly("other-v1")
	held.await("other-v1")
	noRefusals(t, m, c)
}

// TestRouteShardsReturn removes the route configuration that an Envoy has in route shards, and restores it with few
// hosts: with another Sidecar, in the same batch or later. Earlier connections must find it.
func TestRouteShardsReturn(t *testing.T) {
	t.Parallel()
	for _, batches := range []int{1, 2} {
		t.Run(fmt.Sprint(batches, " batches"), func(t *testing.T) {
			t.Parallel()
			c := newClient("client")
			c.drain = time.Hour
			_, size := growing(t, c)
			const from = 8
			ofAll := func(hosts string) string { // the Sidecar of workloads without a more specific one
				s := strings.Replace(c.sidecar(hosts), "{name: client,", "{name: default,", 1)
				return strings.Replace(s, "  workloadSelector: {labels: {app: client}}\n", "", 1)
			}
			docs := func(sidecars ...string) []string { return append(sidecars, size(2 * from)[1:]...) }
			m := startMeshSplit(t, server.RoutesAuto, from, docs(ofAll("./*"))...)
			c.start(t, m, false)
			held := holdConnections(t, c.url(), "web")
			if batches > 1 {
				m.apply(docs(ofAll("~/*"))...)
			}
			m.apply(docs(ofAll("~/*"), c.sidecar("./web.shop.svc.cluster.local"))...)
			require.Equal(t, batches > 1, chainsDraining(t, c) > 0, "its listener went, and came back")
			held.await("web-v1")
			require.Equal(t, server.RoutesScoped, m.proxy(c.name).Strategy)
			noRefusals(t, m, c)
		})
	}
}

// TestStrategiesChange connects an Envoy to control planes that split the routes of two listeners and to others that do
// not, and to a mesh that has shrunk meanwhile. Each time, earlier connections stay with the draining listeners. No
// call may fail.
func TestStrategiesChange(t *testing.T) {
	t.Parallel()
	c := newClient("client")
	c.drain = time.Hour
	other, size := growing(t, c)
	const from = 6
	docs := func(n int, docs ...string) []string {
		return append(append(docs, size(n)[1:]...), anotherPort(c, other)...)
	}
	m := startMeshSplit(t, server.RoutesVHDS, from, docs(2*from)...)
	c.start(t, m, false)
	require.Equal(t, server.RoutesVHDS, m.proxy(c.name).Strategy)
	second := fmt.Sprintf("http://%s:15081/", c.ip)
	calls, more := startTraffic(t, c, "web"), startTrafficAt(t, second, "also0")
	for _, step := range []struct {
		name     string
		strategy server.RouteStrategy
		services int
		replaced bool // the first listener
	}{
		{name: "upgraded", strategy: server.RoutesAuto, services: 2 * from, replaced: true},
		{name: "shrunk", strategy: server.RoutesAuto, services: 2},
		{name: "rolled back", strategy: server.RoutesVHDS, services: 2, replaced: true},
		{name: "grown", strategy: server.RoutesVHDS, services: 2 * from},
		{name: "upgraded again", strategy: server.RoutesScoped, services: 2 * from, replaced: true},
		{name: "scoped no more", strategy: server.RoutesAuto, services: 2},
	} {
		t.Run(step.name, func(t *testing.T) {
			held, also, draining := holdConnections(t, c.url(), "web"), holdConnections(t, second, "also0"), chainsDraining(t, c)
			m.stop()
			m.strategy = step.strategy
			m.write("mesh.yaml", docs(step.services)...)
			m.start()
			awaitConnected(t, m, c)
			held.await("web-v1")
			m.apply(docs(step.services, routes("web", to("other")))...)
			calls.requireOnly("other-v1")
			held.await("other-v1")
			m.apply(docs(step.services)...)
			calls.requireOnly("web-v1")
			held.await("web-v1")
			also.await("other-v1")
			more.requireOnly("other-v1")
			require.Equal(t, step.replaced, chainsDraining(t, c) > draining, "its listener was replaced")
			require.Equal(t, server.RoutesScoped, m.proxy(c.name).Strategy, "its tables have what its listeners that drain may look for")
		})
	}
	noRefusals(t, m, c)
}

// changesHost is a filter that sends requests with a header to another host.
var changesHost = luaFilter("host", "function envoy_on_request(h) local host = h:headers():get('x-host') "+
	"if host then h:headers():replace(':authority', host) h:clearRouteCache() end end")

// requireHostChanges checks that, with the filter, a request takes the route of its new host.
func requireHostChanges(t *testing.T, c *client, filtered bool) {
	t.Helper()
	want := "web-v1"
	if filtered {
		want = "other-v1"
	}
	got := ""
	eventually(t, "a request with a host for the filter goes to "+want, func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url(), http.NoBody)
		require.NoError(t, err)
		req.Host, req.Close = "web", true
		req.Header.Set("x-host", "other")
		resp, err := http.DefaultTransport.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body := new(strings.Builder)
		_, err = io.Copy(body, resp.Body)
		require.NoError(t, err)
		got = fmt.Sprintf("%d %s", resp.StatusCode, body)
		return got == "200 "+want
	}, func() string { return got })
}

// chainsDraining returns the number of replaced filter chains that still have connections.
func chainsDraining(t *testing.T, c *client) uint64 {
	t.Helper()
	stats, err := c.admin.Stats(t.Context(), `listener_manager\.total_(filter_chains|listeners)_draining$`)
	require.NoError(t, err)
	return stats["listener_manager.total_filter_chains_draining"] + stats["listener_manager.total_listeners_draining"]
}

// heldConnections were made before a change. Envoy ends a connection of a draining listener with the next response on
// it, so that each is good for one call.
type heldConnections struct {
	t     *testing.T
	url   string
	host  string
	conns []*http.Client
}

func holdConnections(t *testing.T, url, host string) *heldConnections {
	t.Helper()
	h := &heldConnections{t: t, url: url, host: host}
	for range 12 {
		conn := &http.Client{Timeout: callLimit, Transport: &http.Transport{}}
		t.Cleanup(conn.CloseIdleConnections)
		_, err := get(conn, h.url, host, false)
		require.NoError(t, err)
		h.conns = append(h.conns, conn)
	}
	return h
}

// await makes calls until who answers one: Envoy's workers use a configuration a moment after its ACK. None may fail.
func (h *heldConnections) await(who string) {
	h.t.Helper()
	eventually(h.t, "calls on held connections go to "+who, func() bool { return h.call() == who }, nil)
}

// call makes a call on the next connection.
func (h *heldConnections) call() string {
	h.t.Helper()
	require.NotEmpty(h.t, h.conns, "connections of before")
	reused := false
	ctx := httptrace.WithClientTrace(h.t.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
	})
	body, err := getWith(ctx, h.conns[0], h.url, h.host, false)
	require.NoError(h.t, err)
	require.True(h.t, reused, "the connection of before")
	h.conns = h.conns[1:]
	return body
}
