package e2e

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// silentDNS is a DNS server that answers nothing. It counts the queries.
type silentDNS struct {
	port    int
	queries atomic.Int64
}

func startSilentDNS(t *testing.T) *silentDNS {
	t.Helper()
	socket, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	d, done := &silentDNS{port: socket.LocalAddr().(*net.UDPAddr).Port}, make(chan struct{})
	go func() {
		defer close(done)
		for query := make([]byte, 512); ; d.queries.Add(1) {
			if _, _, err := socket.ReadFrom(query); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = socket.Close()
		<-done
	})
	return d
}

// unresolved is a host whose name is looked up at the server.
func (d *silentDNS) unresolved(name string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.example]
  location: MESH_EXTERNAL
  resolution: DNS
  ports: [{number: %[2]d, name: http, protocol: HTTP}]
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: %[1]s, namespace: shop}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {cluster: {service: %[1]s.example}}
    patch:
      operation: MERGE
      value:
        typed_dns_resolver_config:
          name: envoy.network.dns_resolver.cares
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig
            resolvers: [{socket_address: {address: 127.0.0.1, port_value: %[3]d}}]
            dns_resolver_options: {no_default_search_domain: true}
            query_timeout_seconds: 60`, name, meshPort, d.port)
}

// TestSilentDNSServer gives a running proxy a host whose name is never resolved, and more changes while Envoy waits for the
// name and holds back the ACK of the host's cluster. The changes must arrive meanwhile, without a failed call. All ACKs must come
// when the host is removed.
func TestSilentDNSServer(t *testing.T) {
	t.Parallel()
	dns := startSilentDNS(t)
	web, other, third := startApp(t, "web", "v1"), startApp(t, "other", "v1"), startApp(t, "third", "v1")
	c := newClient("client")
	base := []string{c.sidecar("./*"), service("web", web)}
	with := func(docs ...string) []string { return append(base[:len(base):len(base)], docs...) }
	m := startMesh(t, server.RoutesAuto, base...)
	c.start(t, m, false)
	calls := startTraffic(t, c, "web")
	calls.requireOnly("web-v1")

	base = append(base, dns.unresolved("silent"))
	m.write("mesh.yaml", base...)
	eventually(t, "Envoy looks for the name", func() bool { return dns.queries.Load() > 0 }, nil)
	m.write("mesh.yaml", with(service("other", other), routes("web", to("other")))...)
	becomeOnly(t, calls, "other-v1")
	requireWarming(t, m, c)

	m.write("mesh.yaml", with(service("third", third), routes("web", to("third")))...)
	becomeOnly(t, calls, "third-v1")
	requireWarming(t, m, c)

	base = base[:2] // the host goes, and Envoy answers what it has not answered
	m.apply(with(service("third", third), routes("web", to("third")))...)
	eventually(t, "every response is answered", func() bool { return idle(*m.proxy(c.name)) }, func() string { return describe(m.proxies()) })
	calls.requireOnly("third-v1")
	noRefusals(t, m, c)
}

// becomeOnly waits until all calls are answered by one application.
func becomeOnly(t *testing.T, calls *traffic, want string) {
	t.Helper()
	eventually(t, "all calls go to "+want, func() bool {
		got := calls.take(40)
		return len(got) == 1 && got[want] > 0
	}, nil)
}

// requireWarming checks that Envoy still waits for a cluster, and has not answered it.
func requireWarming(t *testing.T, m *mesh, c *client) {
	t.Helper()
	require.Equal(t, uint64(1), c.stats(t, `cluster_manager\.warming_clusters$`)["cluster_manager.warming_clusters"])
	for _, s := range m.proxy(c.name).Types {
		require.Falsef(t, s.Type == "CDS" && s.InFlightSince.IsZero(), "%s", strings.TrimSpace(describe(m.proxies())))
	}
}
