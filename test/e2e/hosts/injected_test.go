//go:build linux

package hosts

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestInjectedPod runs an injected Pod as a kubelet would: the init container sets the rules, also for DNS, and ends.
// Then the sidecar runs without any rights.
func TestInjectedPod(t *testing.T) {
	m := startMesh(t, shop, namesOnly)
	others := m.net.Host()
	serveOthers(t, others, "198.51.100.7")
	m.workload("web")
	host := m.net.Host()
	k := inject(t, host, `apiVersion: v1
kind: Pod
metadata:
  name: client-1
  namespace: shop
  labels: {app: client}
  annotations: {proxy.istio.io/config: '{proxyMetadata: {ISTIO_META_DNS_CAPTURE: "true"}}'}
spec:
  containers: [{name: app, image: app}]
`, "image: moonsail\nxdsAddress: "+at(m.control, 15010)+"\nxdsPlaintext: true\n")

	config := filepath.Join(k.dir, "resolv.conf")
	require.NoError(t, os.WriteFile(config, []byte("nameserver "+others.IP.String()+"\n"), 0o644))
	w := m.startPod(k, "--resolv-conf="+config)

	require.Equal(t, "web-1", call(t, host, "http://10.96.0.1/", "web.shop").App, "only sidecars know the service's address")
	asks := resolver(host, netip.AddrPortFrom(others.IP, 53), "udp")
	for name, want := range map[string]string{"billing.mesh.": "10.97.0.1", "www.example.org.": "198.51.100.7"} {
		eventually(t, "the address of "+name, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			list, err := asks.LookupHost(ctx, name)
			if err == nil && !slices.Equal(list, []string{want}) {
				err = fmt.Errorf("it is %v", list)
			}
			return err
		})
	}
	require.NoError(t, w.agent.end(t))
}
