package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// onDemand is the mesh's option of clusters on demand.
func onDemand(o *controlplane.Options) { o.Mesh.Delivery = model.DeliverOnDemand }

// TestColdServicesOnDemand calls services that a sidecar has no cluster of. Each call must succeed, and the sidecar must
// have the clusters of those that were called.
func TestColdServicesOnDemand(t *testing.T) {
	for _, way := range ways[:3] {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			coldServices(t, way.strategy)
		})
	}
}

func coldServices(t *testing.T, strategy server.RouteStrategy) {
	const services, called = 60, 40
	web := startApp(t, "web", "v1")
	c := newClient("client")
	docs := []string{c.sidecar("./*")}
	for i := range services {
		docs = append(docs, service(cold(i), web))
	}
	m := startMeshWith(t, strategy, onDemand, docs...)
	c.start(t, m, false)
	require.Empty(t, coldClusters(t, c), "clusters before the first call")

	callAll(t, c, 0, called/2)
	require.Len(t, coldClusters(t, c), called/2)
	m.stop()
	callAll(t, c, 0, called/2) // those that it has, without a control plane
	var waiting sync.WaitGroup
	waiting.Go(func() { callAll(t, c, called/2, called) }) // they wait until the control plane is back
	m.start()
	waiting.Wait()
	require.Len(t, coldClusters(t, c), called)
	awaitConnected(t, m, c)
	noRefusals(t, m, c)
	requireQuiet(t, c.bareEnvoy)
}

func cold(i int) string { return fmt.Sprintf("cold%d", i) }

// callAll calls some services once, all at the same time.
func callAll(t *testing.T, c *client, from, to int) {
	t.Helper()
	caller := http.Client{Timeout: callLimit, Transport: &http.Transport{}}
	defer caller.CloseIdleConnections()
	failed := make(chan string, to)
	var calls sync.WaitGroup
	for i := from; i < to; i++ {
		calls.Go(func() {
			if body, err := get(&caller, c.url(), cold(i), true); err != nil || body != "web-v1" {
				failed <- fmt.Sprintf("%s: %q %v", cold(i), body, err)
			}
		})
	}
	calls.Wait()
	close(failed)
	for f := range failed {
		t.Error(f)
	}
}

// coldClusters returns the clusters of the services cold that a sidecar has.
func coldClusters(t *testing.T, c *client) []string {
	t.Helper()
	raw, err := c.admin.Clusters(t.Context())
	require.NoError(t, err)
	var all struct {
		Statuses []struct{ Name string } `json:"cluster_statuses"`
	}
	require.NoError(t, json.Unmarshal(raw, &all))
	var out []string
	for _, s := range all.Statuses {
		if strings.Contains(s.Name, "||cold") {
			out = append(out, s.Name)
		}
	}
	return out
}
