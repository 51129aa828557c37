//go:build linux

package hosts

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/netns"
)

// aboveShop is a service on an unprivileged port.
const aboveShop = `apiVersion: v1
kind: Service
metadata: {name: above, namespace: shop}
spec:
  clusterIP: 10.96.0.3
  selector: {app: web}
  ports: [{name: http, port: 8088, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: above, namespace: shop, labels: {kubernetes.io/service-name: above}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints: [{addresses: ["%s"], conditions: {ready: true}, targetRef: {kind: Pod, name: web-1, namespace: shop}}]`

// TestPrivilegedPorts checks that a sidecar without rights, whose applications connect to its listeners themselves, is
// not sent listeners at privileged ports, which its Envoy would refuse.
func TestPrivilegedPorts(t *testing.T) {
	m := startMesh(t, shop)
	web := m.workload("web")
	m.write("above.yaml", fmt.Sprintf(aboveShop, web.IP))
	for metadata, refused := range map[string]bool{"": false, `ISTIO_META_UNPRIVILEGED_POD: "false"`: true} {
		host := m.net.Host()
		name := fmt.Sprintf("client-%t", refused)
		w := m.startUnprivileged(host, name, metadata)
		require.Equal(t, "web-1", call(t, host, "http://127.0.0.1:8088/", "above").App)
		eventually(t, fmt.Sprintf("%s refuses a listener: %t", name, refused), func() error {
			held := m.held(name)
			if slices.Contains(held, "127.0.0.1_80") != refused || !refused && len(held) > 0 {
				return fmt.Errorf("it refuses %v\n%s", held, w.agent.log)
			}
			return nil
		})
		_, _, err := get(host, "http://127.0.0.1/", "web")
		require.Error(t, err, "nothing listens there")
	}
}

// startUnprivileged runs the sidecar of a Pod whose connections are not intercepted.
func (m *mesh) startUnprivileged(host *netns.Host, name, metadata string) *workload {
	m.t.Helper()
	k := inject(m.t, host, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: shop
  labels: {app: client}
  annotations: {sidecar.istio.io/interceptionMode: NONE, proxy.istio.io/config: 'proxyMetadata: {%s}'}
spec:
  containers: [{name: app, image: app}]
`, name, metadata), "image: moonsail\nxdsAddress: "+at(m.control, 15010)+"\nxdsPlaintext: true\n")
	work := filepath.Join(k.dir, "work")
	require.NoError(m.t, os.Mkdir(work, 0o755))
	require.NoError(m.t, os.Chown(work, 1337, 1337))
	w := &workload{Host: host, name: name}
	w.agent = k.start("istio-proxy", "--work-dir="+work, "--wasm-cache-dir="+filepath.Join(work, "wasm"), "--pod-info="+k.dir)
	m.awaitReady(w)
	return w
}

// held returns the names of the resources that a proxy has refused.
func (m *mesh) held(name string) []string {
	m.t.Helper()
	var out []string
	for _, p := range m.proxies() {
		for _, typ := range p.Types {
			for _, h := range typ.Held {
				if p.Name == name {
					out = append(out, h.Name)
				}
			}
		}
	}
	return out
}

// proxies returns the control plane's view of its proxies.
func (m *mesh) proxies() []server.ProxyState {
	m.t.Helper()
	status, text, err := get(m.control, "http://127.0.0.1:15014/debug/proxies?local", "")
	require.NoError(m.t, err)
	require.Equal(m.t, http.StatusOK, status)
	var answer struct{ Proxies []server.ProxyState }
	require.NoError(m.t, json.Unmarshal([]byte(text), &answer))
	require.NotEmpty(m.t, answer.Proxies)
	return answer.Proxies
}
