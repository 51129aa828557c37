package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/controlplane/dependencies"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestLearnedDependencies starts a sidecar, which calls services that it has no cluster of. The control plane is restarted. A
// second sidecar of the same workload must have those clusters once it is ready, and ask for none. Services that were deleted,
// renamed or hidden meanwhile must be left out.
func TestLearnedDependencies(t *testing.T) {
	for _, way := range ways[:3] {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			learnedDependencies(t, way.strategy)
		})
	}
}

func learnedDependencies(t *testing.T, strategy server.RouteStrategy) {
	const services, called = 40, 20
	web := startApp(t, "web", "v1")
	first, second := newClient("client"), newClient("client")
	docs := []string{first.sidecar("./*")}
	for i := range services {
		docs = append(docs, service(cold(i), web))
	}
	file := filepath.Join(t.TempDir(), "dependencies")
	m := startMeshWith(t, strategy, func(o *controlplane.Options) {
		onDemand(o)
		o.Dependencies = controlplane.Dependencies{Learn: true, File: file}
	}, docs...)
	first.start(t, m, false)
	callAll(t, first, 0, called)
	require.Len(t, coldClusters(t, first), called)
	require.NotZero(t, asksOf(t, first), "the first start is cold")
	first.process.Kill()
	m.stop()

	hidden := strings.Replace(service(cold(2), web), "metadata: {", "metadata: {annotations: {networking.istio.io/exportTo: other}, ", 1)
	docs = append([]string{second.sidecar("./*")}, docs[3+1:]...)
	docs = append(docs, service("renamed0", web), hidden)
	m.write("mesh.yaml", docs...)
	m.start()
	second.start(t, m, false)
	var want []string
	for i := 3; i < called; i++ {
		want = append(want, fmt.Sprintf("outbound|%d||%s.shop.svc.cluster.local", meshPort, cold(i)))
	}
	slices.Sort(want)
	has := coldClusters(t, second)
	slices.Sort(has)
	require.Equal(t, want, slices.Compact(has), "clusters before the first call")
	callAll(t, second, 3, called)
	require.Zero(t, asksOf(t, second), "the second start has no cold call")
	callAll(t, second, called, called+1)
	require.NotZero(t, asksOf(t, second), "an unknown service is asked for")
	noRefusals(t, m, second)
	requireQuiet(t, second.bareEnvoy)
}

// TestWarmRoutes starts a second sidecar of a workload, with routes on demand: it must have the shards of the services that the
// first one called once it is ready, and ask for none.
func TestWarmRoutes(t *testing.T) {
	web := startApp(t, "web", "v1")
	first, second := newClient("client"), newClient("client")
	docs := []string{first.sidecar("./*")}
	for i := range 8 {
		docs = append(docs, service(cold(i), web))
	}
	m := startMeshWith(t, server.RoutesAuto, func(o *controlplane.Options) {
		onDemandRoutes(o)
		o.Dependencies.Learn = true
	}, docs...)
	first.start(t, m, false)
	require.Empty(t, shardsOf(t, first))
	callAll(t, first, 0, 3)
	called := shardsOf(t, first)
	first.process.Kill()

	docs[0] = second.sidecar("./*")
	m.write("mesh.yaml", docs...)
	second.start(t, m, false)
	warm := shardsOf(t, second)
	require.Len(t, warm, len(called), "shards before the first call: %v, those of the first sidecar: %v", warm, called)
	require.NotEmpty(t, warm)
	before := second.stats(t, "scoped_rds|odcds|rds.*update_attempt$")
	callAll(t, second, 0, 3)
	require.ElementsMatch(t, warm, shardsOf(t, second))
	require.Equal(t, before, second.stats(t, "scoped_rds|odcds|rds.*update_attempt$"), "no request waits for routes or clusters")
	callAll(t, second, 3, 8)
	require.Greater(t, len(shardsOf(t, second)), len(warm), "others are asked for")
	noRefusals(t, m, second)
	requireQuiet(t, second.bareEnvoy)
}

// TestDependenciesByMetrics learns from the metrics of a sidecar with full configuration, and its agent.
func TestDependenciesByMetrics(t *testing.T) {
	web := startApp(t, "web", "v1")
	c := newClient("client")
	m := startMeshWith(t, server.RoutesAuto, func(o *controlplane.Options) {
		o.Dependencies = controlplane.Dependencies{Learn: true, Every: 200 * time.Millisecond}
	}, c.sidecar("./*"), service("web", web), service("other", web))
	startReplica(t, m, "client-1", func(a *agent.Config) {
		a.Workload.IPs, a.Workload.Labels, a.Workload.WorkloadName = []string{c.ip}, map[string]string{"app": "client"}, "client"
	})
	caller := http.Client{Timeout: callLimit, Transport: &http.Transport{}}
	defer caller.CloseIdleConnections()
	var calls []dependencies.CallReport
	eventually(t, "the call and its rate are known", func() bool {
		_, err := get(&caller, c.url(), "web", true)
		require.NoError(t, err)
		var r dependencies.Report
		m.get("/debug/dependencies?workload=client.shop", &r)
		if len(r.Workloads) == 0 {
			return false
		}
		require.Equal(t, 1, r.Workloads[0].Proxies)
		calls = r.Workloads[0].Calls
		return calls[0].Rate != nil && *calls[0].Rate > 0
	}, nil)
	require.Len(t, calls, 1)
	require.Equal(t, model.Host("web.shop.svc.cluster.local"), calls[0].Host)
	require.Equal(t, model.KindService, calls[0].Service.Kind)
}

// asksOf returns how often a sidecar has asked for clusters.
func asksOf(t *testing.T, c *client) uint64 {
	t.Helper()
	return c.stats(t, "^cluster_manager.odcds.")["cluster_manager.odcds.update_attempt"]
}
