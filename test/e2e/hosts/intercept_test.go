//go:build linux

package hosts

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/nftables"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/netns"
)

// excludedPort of every application is not intercepted in tests that exclude it.
const excludedPort = 9090

// shop is a service for each of client and web, with addresses that no host has.
const shop = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 10.96.0.1
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 81, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: client, namespace: shop}
spec:
  clusterIP: 10.96.0.2
  selector: {app: client}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
` + webRoute

// webRoute marks requests that go through the mesh.
const webRoute = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web]
  http:
  - headers: {request: {set: {x-route: of-the-mesh}}}
    route: [{destination: {host: web, port: {number: 80}}}]
`

const (
	webURL    = "http://10.96.0.1/"
	webTCP    = "http://10.96.0.1:81/"
	clientURL = "http://10.96.0.2/"
)

// byEnvoy is the source address of connections from a sidecar to its application.
const byEnvoy = "127.0.0.6"

// tables returns the tables of nftables on a host.
func tables(t *testing.T, h *netns.Host) []string {
	t.Helper()
	var names []string
	var failed error
	h.Do(t, func() {
		conn, err := nftables.New()
		if err != nil {
			failed = err
			return
		}
		list, err := conn.ListTables()
		failed = err
		for _, table := range list {
			names = append(names, table.Name)
		}
	})
	require.NoError(t, failed)
	return names
}

func TestRedirectedBothWays(t *testing.T) {
	m := startMesh(t, shop)
	web, client := m.workload("web"), m.workload("client")

	got := call(t, client.Host, webURL, "web.shop.svc.cluster.local")
	require.Equal(t, "web-1", got.App)
	require.Equal(t, byEnvoy, got.From, "the server's sidecar made the connection")
	require.Equal(t, "of-the-mesh", got.Header.Get("X-Route"), "the client's sidecar routed it")

	require.Equal(t, byEnvoy, call(t, client.Host, webTCP, "web").From, "TCP")
	self := call(t, client.Host, clientURL, "client")
	require.Equal(t, "client-1", self.App, "a workload calls itself by its service")
	require.Equal(t, byEnvoy, self.From)
	require.Equal(t, client.IP.String(), call(t, client.Host, "http://"+at(client.Host, appPort), "").From, "and by its own address, without a sidecar")

	// A host without a sidecar is intercepted by the server's sidecar too.
	intruder := m.net.Host()
	got = call(t, intruder, "http://"+at(web.Host, appPort), "")
	require.Equal(t, byEnvoy, got.From)
	require.Empty(t, got.Header.Get("X-Route"))

	m.requireAtLoopback(t, web, client)

	// What runs as Envoy's user is not intercepted.
	require.Equal(t, []string{"moonsail"}, tables(t, web.Host))
	require.NoError(t, web.agent.end(t))
	require.Empty(t, tables(t, web.Host), "the agent takes its rules away")
	require.Equal(t, intruder.IP.String(), call(t, intruder, "http://"+at(web.Host, appPort), "").From)
}

// requireAtLoopback checks that an application that listens only at the loopback address is called there as soon as the
// mesh's configuration requires it.
func (m *mesh) requireAtLoopback(t *testing.T, web, client *workload) {
	t.Helper()
	const port, url = 8085, "http://10.96.0.3/"
	serveAt(t, web.Host, fmt.Sprint("127.0.0.1:", port), "local")
	m.write("local.yaml", fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: local, namespace: shop}
spec: {clusterIP: 10.96.0.3, selector: {app: web}, ports: [{name: http, port: 80, targetPort: %d}]}`, port), fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: local, namespace: shop, labels: {kubernetes.io/service-name: local}}
addressType: IPv4
ports: [{name: http, port: %d}]
endpoints: [{addresses: ["%s"], conditions: {ready: true}, targetRef: {kind: Pod, name: %s, namespace: shop}}]`, port, web.IP, web.name))
	eventually(t, "the service exists, and nothing listens at the Pod's address", func() error {
		status, text, err := get(client.Host, url, "local")
		if err == nil && status != http.StatusServiceUnavailable {
			return fmt.Errorf("status %d: %s", status, text)
		}
		return err
	})
	m.write("istio.yaml", `apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "inboundTrafficPolicy: {mode: LOCALHOST}"}`)
	require.Equal(t, "local", call(t, client.Host, url, "local").App)
	require.Equal(t, "web-1", call(t, client.Host, webURL, "web.shop.svc.cluster.local").App, "so does what listens everywhere")
}

// TestExcludedPorts checks that sidecars also listen at the ports of the mesh's configuration.
func TestExcludedPorts(t *testing.T) {
	m := startMesh(t, shop, `apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system}
data: {mesh: "{proxyListenPort: 16001, proxyInboundListenPort: 16006}"}`)
	elsewhere := []string{"--envoy-port", "16001", "--inbound-capture-port", "16006"}
	web := m.workload("web", append(elsewhere, "--exclude-inbound-ports", fmt.Sprint(excludedPort))...)
	client := m.workload("client", append(elsewhere, "--exclude-outbound-ports", fmt.Sprint(excludedPort))...)
	direct := call(t, client.Host, "http://"+at(web.Host, excludedPort), "")
	require.Equal(t, client.IP.String(), direct.From, "neither sidecar took it")
	require.Equal(t, byEnvoy, call(t, m.net.Host(), "http://"+at(client.Host, excludedPort), "").From, "its inbound port is not excluded")
	got := call(t, client.Host, webURL, "web")
	require.Equal(t, "of-the-mesh", got.Header.Get("X-Route"))
	require.Equal(t, byEnvoy, got.From)
}

// TestTProxy checks that the application sees its caller's address although its sidecar is in between.
func TestTProxy(t *testing.T) {
	m := startMesh(t, shop)
	web := m.workload("web", "--interception-mode", "TPROXY")
	client := m.workload("client")
	got := call(t, client.Host, webURL, "web.shop.svc.cluster.local")
	require.Equal(t, "of-the-mesh", got.Header.Get("X-Route"))
	require.NotEmpty(t, got.Header.Get("X-Forwarded-Proto"))
	require.Equal(t, client.IP.String(), got.From)
	status, stats, err := get(web.Host, "http://127.0.0.1:15000/stats?filter=downstream_cx_total", "")
	require.NoError(t, err)
	require.Equal(t, 200, status)
	require.NotContains(t, stats, "15006.downstream_cx_total: 0")
	self := call(t, web.Host, webURL, "web")
	require.Equal(t, "web-1", self.App, "a workload calls itself by its service")
	require.NoError(t, web.agent.end(t))
	require.Empty(t, tables(t, web.Host))
}

// TestRulesOfKilledAgentAreRemoved checks that a command removes the rules that an agent left when it was killed.
func TestRulesOfKilledAgentAreRemoved(t *testing.T) {
	m := startMesh(t, shop)
	web, client := m.workload("web"), m.net.Host()
	require.NoError(t, web.agent.cmd.Process.Kill())
	await.From(t, web.agent.done)
	eventually(t, "no process accepts the connections", func() error { // the kernel ends Envoy after its agent
		if status, _, err := get(client, "http://"+at(web.Host, appPort), ""); err == nil {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
	undo := run(t, web.Host, "agent", "intercept", "--undo")
	await.From(t, undo.done)
	require.NoError(t, undo.err, undo.log)
	require.Empty(t, tables(t, web.Host))
	require.Equal(t, client.IP.String(), call(t, client, "http://"+at(web.Host, appPort), "").From)

	// An init container sets them for a sidecar that cannot. A second run has the same result.
	for range 2 {
		set := run(t, web.Host, "agent", "intercept")
		await.From(t, set.done)
		require.NoError(t, set.err, set.log)
	}
	require.Equal(t, []string{"moonsail"}, tables(t, web.Host))
	dry := run(t, web.Host, "agent", "intercept", "--dry-run", "--intercept-with", "iptables")
	await.From(t, dry.done)
	require.NoError(t, dry.err)
	require.True(t, strings.Contains(dry.log.String(), "-A PREROUTING -j MOONSAIL_NAT_PREROUTING"), dry.log)
}
