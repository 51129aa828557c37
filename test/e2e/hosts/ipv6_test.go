//go:build linux

package hosts

import (
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/netns"
)

// shop6 is shop's web with an address of each family.
const shop6 = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: "fd96::1"
  clusterIPs: ["fd96::1", 10.96.0.1]
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv6, IPv4]
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 81, targetPort: 8080}]
---
` + webRoute

const (
	webURL6  = "http://[fd96::1]/"
	webTCP6  = "http://[fd96::1]:81/"
	byEnvoy6 = "::6"
)

// TestIPv6 checks a server with IPv6 only, and clients with IPv6 only and with both families.
func TestIPv6(t *testing.T) {
	m := startMeshOn(t, netns.New(t, true), shop6)
	six := func(h *netns.Host) netip.Addr { return h.IP6 }
	m.workloadAt("web", six)
	only := m.workloadAt("only", six)
	both := m.workloadAt("both", func(h *netns.Host) netip.Addr { return h.IP }, "--ip", "fd91::e") // the address of the fourth host
	require.Equal(t, "fd91::e", both.IP6.String())

	for _, client := range []*workload{only, both} {
		got := call(t, client.Host, webURL6, "web.shop.svc.cluster.local")
		require.Equal(t, "web-1", got.App, client.name)
		require.Equal(t, "of-the-mesh", got.Header.Get("X-Route"), "%s: its sidecar routed it", client.name)
		require.Equal(t, byEnvoy6, got.From, "%s: the server's sidecar made the connection", client.name)
		require.Equal(t, byEnvoy6, call(t, client.Host, webTCP6, "web").From, "%s: TCP", client.name)
	}
	require.Equal(t, "of-the-mesh", call(t, both.Host, webURL, "web").Header.Get("X-Route"), "by the service's IPv4 address")

	intruder := m.net.Host()
	direct := "http://" + netip.AddrPortFrom(both.IP6, appPort).String()
	require.Equal(t, byEnvoy6, call(t, intruder, direct, "").From, "a workload with both, by IPv6")
	require.Equal(t, byEnvoy, call(t, intruder, "http://"+at(both.Host, appPort), "").From, "and by IPv4")

	require.NoError(t, both.agent.end(t))
	require.Equal(t, intruder.IP6.String(), call(t, intruder, direct, "").From, "the agent takes its rules away")
	var left []netip.Addr
	both.Do(t, func() { left = addresses(t) })
	require.NotContains(t, left, netip.MustParseAddr(byEnvoy6), "and its address")
}

// TestProbesOfIPv6 checks that the kubelet's probe of an injected Pod with IPv6 only passes through its agent and
// bypasses its Envoy, which lets nothing in.
func TestProbesOfIPv6(t *testing.T) {
	m := startMeshOn(t, netns.New(t, true), shop6, `apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict, namespace: shop}
spec: {mtls: {mode: STRICT}}`)
	host := m.net.Host()
	serve(t, host, appPort, "web-1")
	k := inject(t, host, `apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, labels: {app: web}}
spec: {containers: [{name: app, image: app, livenessProbe: {httpGet: {path: /, port: 8080}}}]}
`, "image: moonsail\nxdsAddress: "+at(m.control, 15010)+"\nxdsPlaintext: true\n")
	k.ip = host.IP6
	m.startPod(k)

	intruder := m.net.Host()
	_, _, err := get(intruder, "http://"+netip.AddrPortFrom(host.IP6, appPort).String(), "")
	require.Error(t, err, "the workload's Envoy lets in nothing")
	probe := k.container("app").LivenessProbe.HTTPGet
	status, text, err := get(intruder, "http://"+netip.AddrPortFrom(host.IP6, uint16(probe.Port.IntVal)).String()+probe.Path, "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, text)
}

// addresses returns those of the network namespace of the thread.
func addresses(t *testing.T) (out []netip.Addr) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Error(err)
	}
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			t.Error(err)
			continue
		}
		out = append(out, p.Addr())
	}
	return out
}
