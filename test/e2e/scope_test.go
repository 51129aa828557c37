package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestScopeChanges moves a running proxy to other proxy groups with Sidecar resources, under traffic. It must get all
// new resources, lose the old ones, and never miss those in both.
func TestScopeChanges(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			scopeChanges(t, way.strategy, way.sotw)
		})
	}
}

func scopeChanges(t *testing.T, strategy server.RouteStrategy, sotw bool) {
	web, other := startApp(t, "web", "v1"), startApp(t, "other", "v1")
	c := newClient("client")
	services := []string{service("web", web), service("other", other), service("third", other)}
	with := func(docs ...string) []string { return append(services[:3:3], docs...) }
	// The namespace's Sidecar, and one for the client only, which takes precedence.
	all := strings.Replace(strings.Replace(c.sidecar("./*"), "name: client", "name: default", 1),
		"  workloadSelector: {labels: {app: client}}\n", "", 1)
	narrow := c.sidecar("./web.shop.svc.cluster.local")
	m := startMesh(t, strategy, with(all)...)
	c.start(t, m, sotw)
	calls := startTraffic(t, c, "web")
	for range 4 {
		requireClusters(t, c, "other", "third", "web")
		table := m.proxy(c.name).Tables
		m.apply(with(all, narrow)...)
		eventually(t, "it has other tables", func() bool { return !slices.Equal(table, m.proxy(c.name).Tables) }, nil)
		requireClusters(t, c, "web")
		m.apply(with(all)...)
		eventually(t, "it has its tables again", func() bool { return slices.Equal(table, m.proxy(c.name).Tables) }, nil)
	}
	calls.requireOnly("web-v1")
	noRefusals(t, m, c)
}

// requireClusters checks that the client's Envoy has clusters and virtual hosts of exactly these services.
func requireClusters(t *testing.T, c *client, services ...string) {
	t.Helper()
	var want []string
	for _, s := range services {
		want = append(want, "CDS outbound|15080||"+s+".shop.svc.cluster.local", "VHDS 15080/"+s+".shop.svc.cluster.local:15080")
	}
	slices.Sort(want)
	eventually(t, "the proxy's world is complete", func() bool {
		var got []string
		d := c.dump(t)
		for name := range maps.Keys(d.holdings) {
			if strings.HasPrefix(name, "CDS outbound|") || strings.HasPrefix(name, "VHDS ") && strings.HasSuffix(name, ":15080") {
				got = append(got, strings.Replace(name, "VHDS "+strings.TrimPrefix(name, "VHDS "), "VHDS 15080/"+trimRoutes(name), 1))
			}
		}
		slices.Sort(got)
		return len(d.unfinished) == 0 && slices.Equal(got, want)
	}, func() string { return strings.Join(slices.Sorted(maps.Keys(c.dump(t).holdings)), "\n") })
}

// trimRoutes returns a virtual host's name without its route configuration.
func trimRoutes(name string) string {
	name = strings.TrimPrefix(name, "VHDS ")
	return name[strings.LastIndexByte(name, '/')+1:]
}
