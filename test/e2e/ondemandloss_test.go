package e2e

import (
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestNoCallLostOnDemand disturbs a sidecar with routes and clusters on demand while its application calls one service all
// the time, and others for the first time. No call may fail. E2E_AWAY sets how long the control plane is away.
func TestNoCallLostOnDemand(t *testing.T) {
	const services, round = 120, 10
	away := 3 * time.Second
	if text := os.Getenv("E2E_AWAY"); text != "" {
		var err error
		away, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	web := startApp(t, "web", "v1")
	c := newClient("client")
	docs := []string{c.sidecar("./*"), service("web", web)}
	for i := range services {
		docs = append(docs, service(cold(i), web))
	}
	m := startMeshWith(t, server.RoutesAuto, onDemandRoutes, docs...)
	c.start(t, m, false)
	calls := startTraffic(t, c, "web")
	calls.requireOnly("web-v1")
	called := 0
	more := func() {
		callAll(t, c, called, called+round)
		called += round
	}
	more()

	for range 5 { // the streams are cut, and new ones begin with what the sidecar has
		m.stop()
		m.start()
		more()
	}
	calls.requireOnly("web-v1")

	m.stop()
	back := time.After(away)
	pause := time.NewTicker(callPause)
	defer pause.Stop()
	for gone := true; gone; {
		select {
		case <-pause.C:
			callAll(t, c, 0, called) // what it has called before
		case <-back:
			gone = false
		}
	}
	m.start()
	more()

	for range 3 { // services that were called go and return
		m.apply(docs[:len(docs)-services+round]...)
		callAll(t, c, 0, round)
		m.apply(docs...)
		// Envoy has ACKed the clusters, and uses each once its endpoints have come.
		eventually(t, "each cluster has endpoints", func() bool {
			return !slices.Contains(slices.Collect(maps.Values(coldEndpoints(t, c))), 0)
		}, nil)
		callAll(t, c, round, called)
		more()
	}
	calls.requireOnly("web-v1")
	noRefusals(t, m, c)
}
