package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// TestTCPOnDemand connects to services with TCP ports that a sidecar has no cluster of. Their servers speak first. Each
// connection must reach its service, also of services that come back, and while the control plane is restarted. Connections
// that are open must stay open.
func TestTCPOnDemand(t *testing.T) {
	const services, called = 30, 10
	port := startTCPServers(t, false)
	c := newClient("client")
	docs := interceptedClient(c)
	for i := range services {
		docs = append(docs, tcpService(i, port))
	}
	m := startMeshWith(t, server.RoutesAuto, intercept(t, c, model.DeliverOnDemand), docs...)
	c.start(t, m, false)
	require.Empty(t, tcpClusters(t, c), "clusters before the first connection")
	greetAll(t, c, 0, called)
	require.Len(t, tcpClusters(t, c), called)
	open := c.connect(t, 0)
	m.stop()
	greetAll(t, c, 0, called) // those that it has, without a control plane
	var waiting sync.WaitGroup
	waiting.Go(func() { greetAll(t, c, called, 2*called) }) // they wait until the control plane is back
	m.start()
	waiting.Wait()
	require.Len(t, tcpClusters(t, c), 2*called)
	m.apply(docs[:len(docs)-services+1]...)
	require.Equal(t, greeting(0), greet(c, 0))
	m.apply(docs...)
	awaitGreetings(t, c, 1, services)
	greetAll(t, c, 0, services)
	requireOpen(t, open, 0)
	awaitConnected(t, m, c)
	noRefusals(t, m, c)
	requireQuiet(t, c.bareEnvoy)
}

// TestTCPModeChanges changes the number of services so that automatic delivery changes the mode. Connections that are open must
// stay open, and new ones must reach their service.
func TestTCPModeChanges(t *testing.T) {
	const from = 12
	port := startTCPServers(t, false)
	c := newClient("client") // connections of a listener that changes are closed at once
	docs := interceptedClient(c)
	first := len(docs)
	for i := range 2 * from {
		docs = append(docs, tcpService(i, port))
	}
	auto := intercept(t, c, model.DeliverAuto)
	m := startMeshWith(t, server.RoutesAuto, func(o *controlplane.Options) {
		auto(o)
		o.Mesh.OnDemandFrom = from
	}, docs[:first+from-1]...)
	c.start(t, m, false)
	awaitMode(t, m, c.name, false)
	open := c.connect(t, 0)
	had := from - 1
	for _, step := range []struct {
		services int
		onDemand bool
	}{{2 * from, true}, {from / 2, false}, {2 * from, true}} {
		m.apply(docs[:first+step.services]...)
		greetAll(t, c, 0, min(had, step.services))
		awaitMode(t, m, c.name, step.onDemand)
		requireOpen(t, open, 0)
		awaitGreetings(t, c, had, step.services)
		greetAll(t, c, 0, step.services)
		requireOpen(t, open, 0)
		had = step.services
	}
	noRefusals(t, m, c)
}

// TestTCPOnDemandCost is TestOnDemandCost for services with TCP ports.
func TestTCPOnDemandCost(t *testing.T) {
	port := startTCPServers(t, true)
	compareCosts(t, "services with TCP ports, TLS", "connections", func(i int) string { return tcpService(i, port) }, measureTCP)
}

func measureTCP(t *testing.T, name string, delivery model.Delivery, services []string, called int) *cost {
	t.Helper()
	c := newClient("client")
	c.fewStats = true
	docs := append(interceptedClient(c), costRule)
	m := startMeshWith(t, server.RoutesAuto, intercept(t, c, delivery), append(docs, services...)...)
	return costOf(t, name, m, c, called, func(i int) { require.Equal(t, greeting(i), greet(c, i)) })
}

// interceptedClient returns the configuration of a client whose connections state their destination in the PROXY protocol,
// instead of being intercepted.
func interceptedClient(c *client) []string {
	c.redirected = true
	return []string{`apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: destination, namespace: shop}
spec:
  configPatches:
  - applyTo: LISTENER_FILTER
    match: {context: SIDECAR_OUTBOUND, listener: {name: virtualOutbound}}
    patch:
      operation: INSERT_FIRST
      value:
        name: envoy.filters.listener.proxy_protocol
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol}`}
}

// intercept returns the options of a mesh with intercepted clients.
func intercept(t *testing.T, c *client, delivery model.Delivery) func(*controlplane.Options) {
	t.Helper()
	out, in := unusedPort(t), unusedPort(t)
	c.at = fmt.Sprintf("127.0.0.1:%d", out)
	return func(o *controlplane.Options) {
		o.Mesh.Delivery, o.Mesh.OutboundPort, o.Mesh.InboundPort = delivery, out, in
	}
}

func unusedPort(t *testing.T) uint32 {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:0")
	require.NoError(t, err)
	defer ln.Close()
	return uint32(ln.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
}

// connect opens a connection to a service, and reads the greeting.
func (c *client) connect(t *testing.T, i int) net.Conn {
	t.Helper()
	conn, text, err := c.dialTCP(i)
	require.NoError(t, err)
	require.Equal(t, greeting(i), text)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (c *client) dialTCP(i int) (net.Conn, string, error) {
	conn, err := net.DialTimeout("tcp", c.at, callLimit)
	if err != nil {
		return nil, "", err
	}
	_ = conn.SetDeadline(time.Now().Add(callLimit))
	_, err = fmt.Fprintf(conn, "PROXY TCP4 203.0.113.9 %s 40000 3306\r\n", tcpAddress(i))
	line := make([]byte, len(greeting(i)))
	if err == nil {
		_, err = io.ReadFull(conn, line)
	}
	if err != nil {
		_ = conn.Close()
		return nil, "", err
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, string(line), nil
}

// greet returns the greeting of a service, or an error.
func greet(c *client, i int) string {
	conn, text, err := c.dialTCP(i)
	if err != nil {
		return err.Error()
	}
	_ = conn.Close()
	return text
}

// greetAll connects to some services, to all at the same time.
func greetAll(t *testing.T, c *client, from, to int) {
	t.Helper()
	var calls sync.WaitGroup
	for i := from; i < to; i++ {
		calls.Go(func() {
			if got := greet(c, i); got != greeting(i) {
				t.Errorf("service %d: %q", i, got)
			}
		})
	}
	calls.Wait()
}

// awaitGreetings waits until services that are new, or have returned, answer. Envoy ACKs before all its workers use the new
// configuration, so the first connections may still meet the earlier one.
func awaitGreetings(t *testing.T, c *client, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		got := ""
		eventually(t, fmt.Sprintf("service %d answers", i), func() bool {
			got = greet(c, i)
			return got == greeting(i)
		}, func() string { return got })
	}
}

// requireOpen checks that the server still answers on a connection.
func requireOpen(t *testing.T, conn net.Conn, i int) {
	t.Helper()
	require.NoError(t, conn.SetDeadline(time.Now().Add(callLimit)))
	_, err := conn.Write([]byte("again\n"))
	require.NoError(t, err)
	line := make([]byte, len(greeting(i)))
	_, err = io.ReadFull(conn, line)
	require.NoError(t, err)
	require.Equal(t, greeting(i), string(line))
}

// tcpClusters returns the clusters of TCP services that a sidecar has.
func tcpClusters(t *testing.T, c *client) []string {
	t.Helper()
	var out []string
	for name := range c.dump(t).holdings {
		if strings.HasPrefix(name, "CDS outbound|3306|") {
			out = append(out, name)
		}
	}
	return out
}

// tcpAddress is the cluster IP of a service, greeting what its server sends: its endpoint's address.
func tcpAddress(i int) string { return fmt.Sprintf("10.200.%d.%d", i/250, i%250+1) }
func greeting(i int) string   { return fmt.Sprintf("%3d.%3d\n", i/250, i%250+1) }

// tcpService is a service with 5 endpoints, all of them the server.
func tcpService(i int, port uint32) string {
	var endpoints strings.Builder
	for e := range 5 {
		fmt.Fprintf(&endpoints, "\n- {addresses: [127.%d.%d.%d]}", 100+e, i/250, i%250+1)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: db%[1]d, namespace: shop}
spec: {clusterIP: %[4]s, ports: [{name: tcp, port: 3306}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db%[1]d, namespace: shop, labels: {kubernetes.io/service-name: db%[1]d}}
addressType: IPv4
ports: [{name: tcp, port: %[2]d}]
endpoints:%[3]s`, i, port, endpoints.String(), tcpAddress(i))
}

// startTCPServers serves at all loopback addresses until the test ends. It speaks first: it sends the part of its address that is
// the service's, and again after each byte sequence that it receives. It returns its port.
func startTCPServers(t *testing.T, secure bool) uint32 {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:0")
	require.NoError(t, err)
	port := uint32(ln.Addr().(*net.TCPAddr).Port) //nolint:gosec // a port
	if secure {
		c, err := certificate()
		require.NoError(t, err)
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{c.tls}, MinVersion: tls.VersionTLS12})
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				ip := conn.LocalAddr().(*net.TCPAddr).IP.To4()
				buf := make([]byte, 64)
				for {
					if _, err := fmt.Fprintf(conn, "%3d.%3d\n", ip[2], ip[3]); err != nil {
						return
					}
					if _, err := conn.Read(buf); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		serving.Wait()
	})
	return port
}
