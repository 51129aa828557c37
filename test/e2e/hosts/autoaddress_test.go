//go:build linux

package hosts

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/test/netns"
)

// external is a database outside of the mesh, on a host, without an address in its ServiceEntry.
func external(name string, h *netns.Host) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.example.com]
  ports: [{number: 6379, name: tcp, protocol: TCP}]
  resolution: STATIC
  endpoints: [{address: %[2]s}]`, name, h.IP)
}

// TestServicesOfOnePort checks that external TCP services of one port, without addresses, are distinguished by the
// addresses that the sidecar's DNS proxy returns. Those must stay when others are added.
func TestServicesOfOnePort(t *testing.T) {
	m := startMesh(t, shop)
	others, servers := m.net.Host(), map[string]*netns.Host{}
	for _, name := range []string{"users", "orders", "stock"} {
		servers[name] = m.net.Host()
		greet(t, servers[name])
	}
	serveOthers(t, others, "198.51.100.7")
	config := filepath.Join(t.TempDir(), "resolv.conf")
	require.NoError(t, os.WriteFile(config, []byte("nameserver "+others.IP.String()+"\n"), 0o600))
	client := m.workload("client", "--capture-dns", "true", "--resolv-conf", config)
	asks := resolver(client.Host, netip.AddrPortFrom(others.IP, 53), "udp")

	m.write("external.yaml", external("users", servers["users"]), external("orders", servers["orders"]))
	before := map[string]string{}
	for _, name := range []string{"users", "orders"} {
		before[name] = reachByName(t, client, asks, name, servers[name])
	}
	require.NotEqual(t, before["users"], before["orders"])

	m.write("external.yaml", external("stock", servers["stock"]), external("users", servers["users"]), external("orders", servers["orders"]))
	for name, server := range servers {
		address := reachByName(t, client, asks, name, server)
		if was := before[name]; was != "" {
			require.Equal(t, was, address)
		}
	}
	require.NoError(t, client.agent.end(t))
}

// reachByName connects to a database by name until its server greets, and returns the address of the name.
func reachByName(t *testing.T, w *workload, asks *net.Resolver, name string, server *netns.Host) (address string) {
	t.Helper()
	eventually(t, name+" answers", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		list, err := asks.LookupHost(ctx, name+".example.com.")
		if err != nil {
			return err
		}
		address = strings.Join(list, " ")
		if ip, err := netip.ParseAddr(address); err != nil || !model.DefaultAutoAddresses().V4.Contains(ip) {
			return fmt.Errorf("it has %s, not one address of the mesh's, of the workload's family", address)
		}
		conn, err := dialFrom(ctx, w.Host, "tcp", net.JoinHostPort(address, "6379"))
		if err != nil {
			return err
		}
		defer conn.Close()
		deadline, _ := ctx.Deadline()
		_ = conn.SetDeadline(deadline) // of a TCP connection
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err == nil && strings.TrimSpace(line) != at(server, 6379) {
			err = fmt.Errorf("%s answers, not %s", strings.TrimSpace(line), at(server, 6379))
		}
		return err
	})
	return address
}
