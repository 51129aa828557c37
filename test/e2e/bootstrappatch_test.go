package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func bootstrapFilter(name, value string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: %s, namespace: shop}
spec:
  workloadSelector: {labels: {app: server}}
  configPatches:
  - applyTo: BOOTSTRAP
    patch:
      operation: MERGE
      value: %s
`, name, value)
}

// bootstrapOf returns the bootstrap that an Envoy reports.
func (m *mutual) bootstrapOf(b *member) (out struct {
	StatsFlushInterval string `json:"stats_flush_interval"`
	StaticResources    struct {
		Clusters []struct{ Name string }
	} `json:"static_resources"`
}) {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, fmt.Sprintf("http://%s:15000/config_dump?resource=&mask=bootstrap", b.ip), http.NoBody)
	require.NoError(m.t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(m.t, err)
	defer resp.Body.Close()
	var dump struct {
		Configs []json.RawMessage
	}
	require.NoError(m.t, json.NewDecoder(resp.Body).Decode(&dump))
	for _, c := range dump.Configs {
		var one struct{ Bootstrap json.RawMessage }
		if json.Unmarshal(c, &one) == nil && one.Bootstrap != nil {
			require.NoError(m.t, json.Unmarshal(one.Bootstrap, &out))
			return out
		}
	}
	require.Fail(m.t, "no bootstrap in the dump")
	return out
}

// sidecar runs another sidecar of the server's account, which requests its bootstrap patches.
func (m *mutual) sidecar(t *testing.T, name string) *member {
	t.Helper()
	w := newMember(name)
	c := w.config(t, m, "server-token")
	c.Workload.ServiceAccount, c.Workload.Labels["app"] = "server", "server"
	c.BootstrapTimeout = time.Minute
	w.run(t, c)
	eventually(t, name+" is ready", func() bool { return strings.Contains(w.log.String(), "sidecar ready") }, w.log.String)
	return w
}

func (m *mutual) awaitLog(t *testing.T, w *member, text string) {
	t.Helper()
	eventually(t, text, func() bool { return strings.Contains(w.log.String(), text) }, w.log.String)
}

// TestBootstrapFilters checks that a sidecar starts with the bootstrap that EnvoyFilters patch, without patches that
// Envoy would refuse. The sidecar must report those to the control plane, and log later changes.
func TestBootstrapFilters(t *testing.T) {
	m := startMutual(t)
	const flush = `{stats_flush_interval: 7s, static_resources: {clusters: [{name: mine, type: STATIC, load_assignment: {cluster_name: mine}}]}}`
	good, other := bootstrapFilter("good", flush), bootstrapFilter("other", `{stats_config: {use_all_default_tags: true}}`)
	bad := bootstrapFilter("bad", `{static_resources: {clusters: [{name: bad, type: LOGICAL_DNS}]}}`)
	m.apply(m.config("server", good, bad, other)...)
	w := m.sidecar(t, "late")
	b := m.bootstrapOf(w)
	require.Equal(t, "7s", b.StatsFlushInterval)
	var names []string
	for _, c := range b.StaticResources.Clusters {
		names = append(names, c.Name)
	}
	require.Contains(t, names, "mine")
	require.Contains(t, names, "xds-grpc")
	require.NotContains(t, names, "bad")
	m.awaitRefusal(t, "late.bootstrap", "/shop/bad", "LOGICAL_DNS")

	const changed = "the EnvoyFilters that patch the bootstrap have changed"
	require.NotContains(t, w.log.String(), changed)
	m.apply(m.config("server", strings.ReplaceAll(good, "7s", "8s"), bad, other)...)
	m.awaitLog(t, w, changed)
	m.apply(m.config("server", good, bad, other)...)
	m.awaitLog(t, w, "the bootstrap matches the EnvoyFilters again")
}

// TestStartsWithoutPatchesThatEnvoyRefuses checks that the sidecar starts again without the patches if Envoy does not start with
// them.
func TestStartsWithoutPatchesThatEnvoyRefuses(t *testing.T) {
	m := startMutual(t)
	m.apply(m.config("server", bootstrapFilter("elsewhere",
		`{static_resources: {listeners: [{name: x, address: {socket_address: {address: 203.0.113.1, port_value: 81}}, filter_chains: [{}]}]}}`))...)
	w := m.sidecar(t, "late")
	require.Contains(t, w.log.String(), "Envoy did not start with the patches of EnvoyFilters; it starts again without them")
	m.awaitRefusal(t, "late.bootstrap", "/shop/elsewhere", "Envoy did not start with it")
	m.apply(m.config("server")...)
	m.awaitRefusal(t)
}

// TestBootstrapWithoutControlPlane checks that a sidecar starts after a short wait if it cannot reach the control
// plane.
func TestBootstrapWithoutControlPlane(t *testing.T) {
	m := startMutual(t)
	w := newMember("alone")
	c := w.config(t, m, "server-token")
	c.XDS.Address, c.BootstrapTimeout = "127.0.0.1:1", 50*time.Millisecond
	w.run(t, c)
	m.awaitLog(t, w, "the control plane did not answer which EnvoyFilters patch the bootstrap")
	m.awaitLog(t, w, "sidecar starting")
}
