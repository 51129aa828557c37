package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

// TestChangesOnDemand changes a cluster that came on demand, under traffic; mirrors to a service that the sidecar never
// called; and removes a service that it called, which returns. No call of a service that exists may fail.
func TestChangesOnDemand(t *testing.T) {
	web, other := startApp(t, "web", "v1"), startApp(t, "other", "v1")
	c := newClient("client")
	base := []string{c.sidecar("./*"), service("web", web)}
	with := func(docs ...string) []string { return append(base[:len(base):len(base)], docs...) }
	m := startMeshWith(t, server.RoutesAuto, onDemand, with(service("other", other), service("third", web))...)
	c.start(t, m, false)
	calls := startTraffic(t, c, "web")
	calls.requireOnly("web-v1")
	for i := range 5 {
		m.apply(with(service("other", other), service("third", web), fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec: {host: web, trafficPolicy: {connectionPool: {tcp: {maxConnections: %d}}}}`, 100+i))...)
		calls.requireOnly("web-v1")
	}

	mirrored := with(service("other", other), service("third", web), routes("web", "{route: [{destination: {host: web}}], mirror: {host: other}}"))
	m.apply(mirrored...)
	calls.requireOnly("web-v1")
	eventually(t, "requests are mirrored", func() bool { return other.served.Load() > 0 }, nil)

	callOnce := func(host string) (string, error) { return get(&http.Client{Timeout: callLimit}, c.url(), host, true) }
	body, err := callOnce("third")
	require.NoError(t, err)
	require.Equal(t, "web-v1", body)
	toThird := routes("gone", to("third"))
	m.apply(with(service("other", other), strings.Replace(toThird, "hosts: [gone]", "hosts: [gone.example.com]", 1))...)
	// Envoy ACKs before all its workers use the new configuration, so the first calls may still meet the earlier one.
	eventually(t, "a call of a cluster that is gone fails at once", func() bool {
		began := time.Now()
		_, err := callOnce("gone.example.com")
		require.Less(t, time.Since(began), callLimit/4, err)
		return err != nil
	}, nil)
	m.apply(with(service("other", other), service("third", web))...)
	eventually(t, "the service that has returned answers", func() bool {
		body, err = callOnce("third")
		return err == nil
	}, func() string { return err.Error() })
	require.Equal(t, "web-v1", body)
	calls.requireOnly("web-v1")
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
	return slices.Sorted(maps.Keys(coldEndpoints(t, c)))
}

// coldEndpoints returns how many endpoints the sidecar's clusters of the services cold have, by name.
func coldEndpoints(t *testing.T, c *client) map[string]int {
	t.Helper()
	raw, err := c.admin.Clusters(t.Context())
	require.NoError(t, err)
	var all struct {
		Statuses []struct {
			Name  string
			Hosts []json.RawMessage `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	require.NoError(t, json.Unmarshal(raw, &all))
	out := map[string]int{}
	for _, s := range all.Statuses {
		if strings.Contains(s.Name, "||cold") {
			out[s.Name] = len(s.Hosts)
		}
	}
	return out
}
