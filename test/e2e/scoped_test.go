package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestScopes grows a mesh beyond the size at which its route configuration is split, and shrinks it, with changes of
// routes at each size, under traffic. No call may fail.
func TestScopes(t *testing.T) {
	t.Parallel()
	c := newClient("client")
	other, size := growing(t, c)
	const from = 4
	m := startMeshSplit(t, server.RoutesScoped, from, size(2)...)
	c.start(t, m, false)
	for _, n := range []int{from, 8 * from, 2, from} {
		m.apply(size(n)...)
		requireSplit(t, c)
		t.Run(fmt.Sprint(n), func(t *testing.T) { routesChange(t, m, c, size, n) })
	}
	requireHosts(t, c)
	noRefusals(t, m, c)

	// An Envoy also lists virtual hosts that it dropped with their shards. After it learns that they are removed,
	// nothing differs.
	m.stop()
	m.start()
	awaitConnected(t, m, c)
	m.apply(size(from, routes("web", to("other")))...)
	before := updates(t, c)
	m.stop()
	m.start()
	awaitConnected(t, m, c)
	require.Empty(t, difference(updates(t, c), before), "it has all of it")
	m.apply(size(from)...)
	requireHosts(t, c)

	calls := startTraffic(t, c, "web")
	m.apply(append(size(from)[1:], anotherPort(c, other)...)...) // its listener does not wait
	calls.requireOnly("web-v1")
	noRefusals(t, m, c)
}

// growing returns a function that gives a mesh any number of services, and further documents: web, other, and more that
// other answers for.
func growing(t *testing.T, c *client) (other *app, size func(n int, docs ...string) []string) {
	t.Helper()
	web, other := startApp(t, "web", "v1"), startApp(t, "other", "v1")
	return other, func(n int, docs ...string) []string {
		docs = append([]string{c.sidecar("./*"), service("web", web), service("other", other)}, docs...)
		for i := range n - 2 {
			docs = append(docs, service(fmt.Sprintf("more-%d", i), other))
		}
		return docs
	}
}

// routesChange changes routes and services at one size, under traffic. A replaced listener closes connections, so
// traffic pauses when the size changes.
func routesChange(t *testing.T, m *mesh, c *client, size func(int, ...string) []string, n int) {
	calls := startTraffic(t, c, "web")
	only := func(who string) {
		t.Helper()
		// Envoy ACKs before its workers use the new configuration.
		eventually(t, "calls go to "+who, func() bool { got := calls.take(20); return got[who] > 0 && len(got) == 1 }, nil)
	}
	only("web-v1")
	for range 3 {
		m.apply(size(n, routes("web", to("other")))...)
		only("other-v1")
		m.apply(size(n)...)
		only("web-v1")
	}
}

// requireSplit checks that the Envoy has the shards of its route configuration.
func requireSplit(t *testing.T, c *client) {
	t.Helper()
	scopes := 0
	eventually(t, "its scopes", func() bool {
		scopes = 0
		for name := range c.dump(t).holdings {
			if strings.HasPrefix(name, "SRDS ") {
				scopes++
			}
		}
		return scopes == routeshard.Count(fewBuckets(1).Bits)
	}, func() string { return fmt.Sprint(scopes) })
}

// requireHosts checks that a host is found however it is written.
func requireHosts(t *testing.T, c *client) {
	t.Helper()
	for _, host := range []string{"web", "WEB", "Web.Shop:15080", "web.shop.svc.cluster.local", "web.shop.svc.cluster.local.:15080"} {
		body, err := get(http.DefaultClient, c.url(), host, true)
		require.NoError(t, err, host)
		require.Equal(t, "web-v1", body, host)
	}
	for _, host := range []string{"unknown", "10.1.2.3:80", "[fd00::1]", "3scale.example.com", "_"} {
		_, err := get(http.DefaultClient, c.url(), host, true)
		require.ErrorContains(t, err, "502", "%s: a bound listener has no place to pass unknown hosts on to", host)
	}
}

// anotherPort is a second listener of a client, with other services.
func anotherPort(c *client, a *app) []string {
	docs := []string{strings.Replace(c.sidecar("./*"), "captureMode: NONE\n    hosts: [\"./*\"]",
		fmt.Sprintf("captureMode: NONE\n    hosts: [\"./*\"]\n  - {port: {number: 15081, name: http, protocol: HTTP}, bind: %s, captureMode: NONE, hosts: [\"./*\"]}", c.ip), 1)}
	for i := range 6 {
		docs = append(docs, strings.ReplaceAll(service(fmt.Sprint("also", i), a), "port: 15080}", "port: 15081}"))
	}
	return docs
}
