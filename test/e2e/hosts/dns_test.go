//go:build linux

package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/netns"
)

// namesOnly are hosts of the mesh that no DNS server knows.
const namesOnly = `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: billing, namespace: shop}
spec:
  hosts: [billing.mesh]
  addresses: [10.97.0.1]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8080}]
  workloadSelector: {labels: {app: web}}
---
apiVersion: v1
kind: Service
metadata: {name: peers, namespace: shop}
spec:
  clusterIP: None
  selector: {app: web}
  ports: [{name: tcp, port: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: peers, namespace: shop, labels: {kubernetes.io/service-name: peers}}
addressType: IPv4
ports: [{name: tcp, port: 8080}]
endpoints: [{addresses: [10.9.0.1]}, {addresses: [10.9.0.2]}, {addresses: [10.9.0.3], conditions: {ready: false}}]
`

// serveOthers answers every DNS question to a host, until the test ends, with one address.
func serveOthers(t *testing.T, h *netns.Host, address string) {
	t.Helper()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.ParseIP(address),
			}}
		}
		_ = w.WriteMsg(m) // the client has gone
	})
	var packets net.PacketConn
	var connections net.Listener
	var err, err2 error
	h.Do(t, func() {
		packets, err = (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", at(h, 53))
		connections, err2 = (&net.ListenConfig{}).Listen(context.Background(), "tcp", at(h, 53))
	})
	require.NoError(t, errors.Join(err, err2))
	for _, s := range []*dns.Server{{PacketConn: packets, Handler: handler}, {Listener: connections, Handler: handler}} {
		started, ended := make(chan struct{}), make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { defer close(ended); _ = s.ActivateAndServe() }()
		await.From(t, started)
		t.Cleanup(func() { _ = s.Shutdown(); await.From(t, ended) })
	}
}

// resolver is the resolver of an application on a host: Go's, with the server of its resolv.conf.
func resolver(h *netns.Host, server netip.AddrPort, network string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
		if e := h.Try(func() { conn, err = (&net.Dialer{}).DialContext(ctx, network, server.String()) }); e != nil {
			return nil, e
		}
		return conn, err
	}}
}

// TestDNS checks that the sidecar answers an application's DNS questions about names of the mesh, and passes all others
// to the server of its resolv.conf.
func TestDNS(t *testing.T) {
	m := startMesh(t, shop, namesOnly)
	others := m.net.Host()
	serveOthers(t, others, "198.51.100.7")
	config := filepath.Join(t.TempDir(), "resolv.conf")
	require.NoError(t, os.WriteFile(config, []byte("nameserver "+others.IP.String()+"\nsearch shop.svc.cluster.local svc.cluster.local cluster.local\n"), 0o600))
	m.workload("web")
	client := m.workload("client", "--capture-dns", "true", "--resolv-conf", config)
	server := netip.AddrPortFrom(others.IP, 53)

	for _, network := range []string{"udp", "tcp"} {
		asks := resolver(client.Host, server, network)
		for name, want := range map[string]string{
			"billing.mesh.":                 "10.97.0.1",
			"web.shop.svc.cluster.local.":   "10.96.0.1",
			"web.shop.":                     "10.96.0.1",
			"peers.shop.svc.cluster.local.": "10.9.0.1 10.9.0.2",
			"www.example.org.":              "198.51.100.7",
		} {
			eventually(t, network+": the addresses of "+name, func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				list, err := asks.LookupHost(ctx, name)
				slices.Sort(list)
				if got := strings.Join(list, " "); err == nil && got != want {
					return fmt.Errorf("they are %s, not %s", got, want)
				}
				return err
			})
		}
	}
	direct, err := resolver(m.net.Host(), server, "udp").LookupHost(t.Context(), "billing.mesh.")
	require.NoError(t, err)
	require.Equal(t, []string{"198.51.100.7"}, direct, "who has no sidecar asks the server itself")
	elsewhere := m.net.Host()
	serveOthers(t, elsewhere, "198.51.100.8")
	direct, err = resolver(client.Host, netip.AddrPortFrom(elsewhere.IP, 53), "udp").LookupHost(t.Context(), "billing.mesh.")
	require.NoError(t, err)
	require.Equal(t, []string{"198.51.100.8"}, direct, "only questions to the servers of resolv.conf are captured")
	require.Equal(t, byEnvoy, call(t, client.Host, "http://10.97.0.1/", "billing.mesh").From, "the address leads to the workloads")

	m.write("more.yaml", strings.NewReplacer("billing", "later", "10.97.0.1", "10.97.0.2").Replace(strings.Split(namesOnly, "\n---\n")[0]))
	eventually(t, "a name that comes later", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		list, err := resolver(client.Host, server, "udp").LookupHost(ctx, "later.mesh.")
		if err == nil && !slices.Equal(list, []string{"10.97.0.2"}) {
			err = fmt.Errorf("it is %v", list)
		}
		return err
	})
	_, metrics, err := get(client.Host, "http://127.0.0.1:15020/stats/prometheus", "")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^dns_requests_total [1-9]`, metrics)
	require.Regexp(t, `(?m)^dns_upstream_requests_total [1-9]`, metrics)
	require.NoError(t, client.agent.end(t))
}
