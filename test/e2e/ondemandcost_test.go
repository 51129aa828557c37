package e2e

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestOnDemandCost compares a sidecar that has all clusters with one that gets them on demand: Envoy's memory beyond one
// without services, bytes from the control plane, and the time of first calls. E2E_SERVICES sets the number of services;
// CONTRIBUTING.md describes how to measure with 5000.
func TestOnDemandCost(t *testing.T) {
	backend := startTLSBackend(t)
	compareCosts(t, "services with TLS", "calls", func(i int) string { return costService(i, backend) }, measureCost)
}

// compareCosts measures a sidecar without services, one with all clusters, and one that gets them on demand. kind and calls
// name what is measured.
func compareCosts(t *testing.T, kind, calls string, service func(i int) string,
	measure func(t *testing.T, name string, delivery model.Delivery, services []string, called int) *cost,
) {
	t.Helper()
	services, called := 60, 20
	if n := os.Getenv("E2E_SERVICES"); n != "" {
		var err error
		services, err = strconv.Atoi(n)
		require.NoError(t, err)
		called = 50
	}
	docs := make([]string, services)
	for i := range services {
		docs[i] = service(i)
	}
	empty := measure(t, "empty", model.DeliverFull, nil, 0)
	full := measure(t, "full", model.DeliverFull, docs, called)
	part := measure(t, "on demand", model.DeliverOnDemand, docs, called)
	t.Logf("%d %s and 5 endpoints each, %d called", services, kind, called)
	for _, c := range []*cost{full, part} {
		t.Logf("%-10s memory %6.1f MB, after the calls %6.1f MB; bytes %8d, after the calls %8d; live after %5d ms; first %s p50 %s p99 %s; warm p50 %s p99 %s",
			c.name, c.start-empty.start, c.after-empty.start, c.startBytes, c.afterBytes, c.live.Milliseconds(), calls,
			percentile(c.first, 50), percentile(c.first, 99), percentile(c.warm, 50), percentile(c.warm, 99))
	}
	require.Less(t, part.startBytes, full.startBytes)
	require.Less(t, part.after, full.after)
}

// costRule makes the calls of all services use TLS.
const costRule = `apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: all, namespace: shop}
spec: {host: "*.shop.svc.cluster.local", trafficPolicy: {tls: {mode: SIMPLE, insecureSkipVerify: true}}}`

type cost struct {
	name                   string
	start, after           float64 // MB
	startBytes, afterBytes uint64  // from the control plane
	live                   time.Duration
	first, warm            []time.Duration
}

func measureCost(t *testing.T, name string, delivery model.Delivery, services []string, called int) *cost {
	t.Helper()
	client := newClient("client")
	client.fewStats = true
	m := startMeshWith(t, server.RoutesAuto, func(o *controlplane.Options) { o.Mesh.Delivery = delivery }, append([]string{client.sidecar("./*"), costRule}, services...)...)
	c := http.Client{Timeout: callLimit, Transport: &http.Transport{}}
	defer c.CloseIdleConnections()
	return costOf(t, name, m, client, called, func(i int) {
		body, err := get(&c, client.url(), costName(i), false)
		require.NoError(t, err)
		require.Equal(t, "tls", body)
	})
}

// costOf starts a client, calls its services, and ends the mesh. call calls the service with a number.
func costOf(t *testing.T, name string, m *mesh, c *client, called int, call func(i int)) *cost {
	t.Helper()
	timed := func(call func()) time.Duration {
		began := time.Now()
		call()
		return time.Since(began)
	}
	out := &cost{name: name, live: timed(func() { c.start(t, m, false) })}
	out.start, out.startBytes = memory(t, c), received(t, c)
	for i := range called {
		out.first = append(out.first, timed(func() { call(i) }))
	}
	for i := range 10 * called {
		out.warm = append(out.warm, timed(func() { call(i % called) }))
	}
	out.after, out.afterBytes = memory(t, c), received(t, c)
	m.stop()
	c.process.Kill()
	return out
}

// percentile returns a percentile of times.
func percentile(times []time.Duration, p int) string {
	if len(times) == 0 {
		return "-"
	}
	slices.Sort(times)
	return fmt.Sprintf("%.1f ms", float64(times[min(len(times)-1, len(times)*p/100)].Microseconds())/1000)
}

// memory returns the MB that Envoy has allocated. Envoy updates its gauges at intervals.
func memory(t *testing.T, c *client) float64 {
	t.Helper()
	uptime := func() uint64 { return c.stats(t, "^server.uptime$")["server.uptime"] }
	before := uptime()
	eventually(t, "Envoy updates its gauges", func() bool { return uptime() > before }, nil)
	return float64(c.stats(t, "^server.memory_allocated$")["server.memory_allocated"]) / (1 << 20)
}

// received returns the bytes that Envoy received from the control plane.
func received(t *testing.T, c *client) uint64 {
	t.Helper()
	for name, n := range c.stats(t, `xds-grpc.*upstream_cx_rx_bytes_total$`) {
		if n > 0 && strings.Contains(name, "xds-grpc") {
			return n
		}
	}
	return 0
}

func costName(i int) string { return fmt.Sprintf("svc%d", i) }

// costService is a service with 5 endpoints, all of them the backend.
func costService(i int, port uint32) string {
	var endpoints strings.Builder
	for e := range 5 {
		fmt.Fprintf(&endpoints, "\n- {addresses: [127.%d.%d.%d]}", 100+e, i/250, i%250+1)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: shop}
spec: {selector: {app: %[1]s}, ports: [{name: http, port: %[2]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: shop, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: %[3]d}]
endpoints:%[4]s`, costName(i), meshPort, port, endpoints.String())
}

// startTLSBackend serves TLS at all loopback addresses until the test ends, and returns its port.
func startTLSBackend(t *testing.T) uint32 {
	t.Helper()
	c, err := certificate()
	require.NoError(t, err)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:0")
	require.NoError(t, err)
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("tls")) })
	serveHTTP(t, tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{c.tls}, MinVersion: tls.VersionTLS12}), &http.Server{Handler: answer}) //nolint:gosec // of a test
	return uint32(ln.Addr().(*net.TCPAddr).Port)                                                                                                        //nolint:gosec // a port
}
