package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/meshtest"
)

// TestVirtualHostsComeAndGo splits and joins route configurations: by single virtual hosts, down to none, and as a
// whole with their listener. Envoy must have what was compiled on every way, and nothing may stay warming.
func TestVirtualHostsComeAndGo(t *testing.T) {
	for _, way := range ways {
		if way.strategy == server.RoutesScoped {
			continue // one shard of a route configuration is never removed alone
		}
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			f, err := meshtest.Load("../meshtest/testdata/http-ports.txtar")
			require.NoError(t, err)
			proxy := f.Proxies[0].Model(f.Mesh.Domain)
			proxy.ScopedRoutes = way.strategy == server.RoutesScoped
			whole := compile(t, f, proxy)
			whole.loopback(t)
			names := names(whole[resource.VirtualHost])
			require.Greater(t, len(names), 2)
			empty := whole.without(t, func(typ resource.Type, _ string) bool { return typ == resource.VirtualHost })

			w := serveWorld(t, way.strategy)
			w.set(empty)
			e := startEnvoy(t, envoyOptions{proxy: proxy, xds: w.socket, sotw: way.sotw})
			e.awaitLive(t, func() string { return describe(w.server.Proxies()) })
			requireHolds(t, w, e, empty) // it began with empty route configurations
			for range 2 {
				for n := range names { // one more each time
					missing := names[n+1:]
					r := whole.without(t, func(typ resource.Type, name string) bool {
						return typ == resource.VirtualHost && slices.Contains(missing, name)
					})
					w.set(r)
					requireHolds(t, w, e, r)
				}
				for _, rc := range whole[resource.VHDSRouteConfig] { // one removed, and restored
					r := whole.without(t, belongsTo(t, whole, rc.Name))
					w.set(r)
					requireHolds(t, w, e, r)
					w.set(whole)
					requireHolds(t, w, e, whole)
				}
				w.set(empty)
				requireHolds(t, w, e, empty)
			}
			requireQuiet(t, e)
		})
	}
}

// TestCatchAllChanges changes the namespace's outbound policy under traffic: another virtual host of the same domain
// replaces the one for unknown hosts.
func TestCatchAllChanges(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			catchAllChanges(t, way.strategy, way.sotw)
		})
	}
}

func catchAllChanges(t *testing.T, strategy server.RouteStrategy, sotw bool) {
	web, other := startApp(t, "web", "v1"), startApp(t, "other", "v1")
	c := newClient("client")
	m := startMesh(t, strategy, c.sidecar("./*"), service("web", web))
	c.start(t, m, sotw)
	calls := startTraffic(t, c, "web")
	strict := c.sidecar("./*") + "\n  outboundTrafficPolicy: {mode: REGISTRY_ONLY}"
	second := fmt.Sprintf("\n  - {port: {number: 15081, name: http, protocol: HTTP}, bind: %s, captureMode: NONE, hosts: [\"./*\"]}", c.ip)
	// It keeps its virtual hosts until the listener is removed.
	also := func(n int) string {
		return strings.ReplaceAll(service(fmt.Sprint("also", n), other), "port: 15080}", "port: 15081}")
	}
	for _, docs := range [][]string{
		{strict, service("web", web)},
		{c.sidecar("./*"), service("web", web)},
		{strict, service("web", web), service("new", other)}, // with a cluster to wait for
		{c.sidecar("./*"), service("web", web), service("newer", other)},
		{c.sidecar("./*") + second, service("web", web), also(1), also(2)},
		{strict, service("web", web), also(1), also(2)}, // with a route configuration that is removed
		{c.sidecar("./*") + second, service("web", web), also(1), also(2)},
		{strict, service("web", web)},
	} {
		m.apply(docs...)
		calls.requireOnly("web-v1")
		noRefusals(t, m, c)
	}
}

// without returns everything except what drop selects.
func (r resources) without(t *testing.T, drop func(resource.Type, string) bool) resources {
	t.Helper()
	out := resources{}
	for typ, list := range r {
		for _, e := range list {
			if !drop(typ, e.Name) {
				out[typ] = append(out[typ], e)
			}
		}
	}
	out.joinRoutes(t)
	return out
}

// belongsTo returns a function that selects the resources of a route configuration.
func belongsTo(t *testing.T, r resources, rc string) func(resource.Type, string) bool {
	t.Helper()
	users := map[string]bool{}
	for _, e := range r[resource.Listener] {
		users[e.Name] = strings.Contains(text(decode(t, e)), `"routeConfigName":"`+rc+`"`) ||
			strings.Contains(text(decode(t, e)), `"routeConfigName": "`+rc+`"`)
	}
	return func(typ resource.Type, name string) bool {
		switch typ {
		case resource.Listener:
			return users[name]
		case resource.VirtualHost:
			return strings.HasPrefix(name, rc+"/")
		case resource.RouteConfig, resource.VHDSRouteConfig:
			return name == rc
		}
		return false
	}
}

func names(list []*resource.Encoded) []string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.Name
	}
	return out
}
