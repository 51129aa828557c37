package e2e

import (
	"fmt"
	"testing"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestMakeBeforeBreak changes, under traffic, where a host's calls go. Each change is one write that adds destinations
// together with references to them, and removes old ones together with theirs. No call may fail, however resources
// reach the proxy.
func TestMakeBeforeBreak(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			makeBeforeBreak(t, way.strategy, way.sotw)
		})
	}
}

func makeBeforeBreak(t *testing.T, strategy server.RouteStrategy, sotw bool) {
	web, old := startApp(t, "web", "v1"), startApp(t, "old", "v1")
	one, two := startApp(t, "other", "v1"), startApp(t, "other", "v2")
	c := newClient("client")
	base := []string{c.sidecar("./*"), service("web", web)}
	with := func(docs ...string) []string { return append(base[:len(base):len(base)], docs...) }
	m := startMesh(t, strategy, with(service("old", old), routes("web", to("old")))...)
	c.start(t, m, sotw)
	calls := startTraffic(t, c, "web")
	calls.requireOnly("old-v1")

	for i := range 5 {
		name := fmt.Sprintf("new%d", i) // a new name
		m.apply(with(service(name, one), routes("web", to(name)))...)
		calls.requireOnly("other-v1") // a service that came with the route; the old one is gone
		m.apply(with(service(name, one, two), subsets(name, "v1", "v2"), routes("web", to(name+"/v2")))...)
		calls.requireOnly("other-v2") // a subset that came with the route
		m.apply(with(service(name, one, two), subsets(name, "v1"), routes("web", to(name+"/v1")))...)
		calls.requireOnly("other-v1") // the other subset is removed
		m.apply(with(service(name, one, two), service("old", old), subsets(name, "v1"),
			routes("web", fmt.Sprintf("{route: [{destination: {host: old}, weight: 50}, {destination: {host: %s, subset: v1}, weight: 50}]}", name)))...)
		calls.requireOnly("old-v1", "other-v1")
		m.apply(with(service(name, one, two))...)
		calls.requireOnly("web-v1") // no rule any more
		m.apply(with(service("old", old), routes("web", to("old")))...)
		calls.requireOnly("old-v1")
	}
	noRefusals(t, m, c)
}

// noRefusals checks that nothing was refused.
func noRefusals(t *testing.T, m *mesh, c *client) {
	t.Helper()
	p := m.proxy(c.name)
	if p == nil {
		t.Fatalf("%s is not connected", c.name)
	}
	if h := held(*p); len(h) > 0 {
		t.Errorf("held: %v", h)
	}
	if n := c.rejected(t); len(n) > 0 {
		t.Errorf("rejected: %v", n)
	}
}

// TestEndpointsComeAndGo removes endpoints under traffic. Once every proxy has ACKed, removed endpoints must get no
// calls. No call may fail.
func TestEndpointsComeAndGo(t *testing.T) {
	t.Parallel()
	apps := []*app{startApp(t, "web", "v1"), startApp(t, "web", "v2"), startApp(t, "web", "v3")}
	c := newClient("client")
	m := startMesh(t, server.RoutesAuto, c.sidecar("./*"), service("web", apps...))
	c.start(t, m, false)
	calls := startTraffic(t, c, "web")
	calls.requireOnly("web-v1", "web-v2", "web-v3")
	for range 5 {
		m.apply(c.sidecar("./*"), service("web", apps[:2]...))
		gone := apps[2].served.Load()
		calls.requireOnly("web-v1", "web-v2")
		m.apply(c.sidecar("./*"), service("web", apps[:1]...))
		calls.requireOnly("web-v1")
		if n := apps[2].served.Load(); n-gone > callers {
			t.Errorf("%d calls of an endpoint that is gone", n-gone)
		}
		m.apply(c.sidecar("./*"), service("web", apps...))
		calls.requireOnly("web-v1", "web-v2", "web-v3")
	}
	noRefusals(t, m, c)
}
