package e2e

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// page returns the text of a page of the control plane.
func (m *mesh) page(path string) string {
	m.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + m.http + path)
	require.NoError(m.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(m.t, err)
	return string(text)
}

// TestInUse checks that a sidecar's Envoy reports what it uses, through the control plane and its agent, that the
// report has it, and that the time from ACK to use is sampled.
func TestInUse(t *testing.T) {
	o := &rollout{t: t, protocol: "http", change: func(*agent.Config) {}}
	o.mesh = startMeshWith(t, server.RoutesAuto, func(o *controlplane.Options) { o.SampleInUse = time.Millisecond }, o.config()...)
	o.add()
	m, name := o.mesh, o.replicas[0].name+".shop"
	m.apply(o.config()...)
	eventually(t, "its listeners are the same in Envoy", func() bool {
		status, out := m.ask("proxy-config", "listeners", name)
		return status == 0 && strings.Contains(out, "same") && !strings.Contains(out, "not asked")
	}, func() string { _, out := m.ask("proxy-config", "listeners", name); return out })
	_, out := m.ask("proxy-config", "listeners", name, "-o", "json")
	require.Contains(t, out, `"admin": "agent at `+o.replicas[0].ip)

	eventually(t, "Envoy uses it", func() bool {
		_, out := m.ask("explain", "sidecar/web", "-n", "shop")
		return strings.Contains(out, "in use by 1 of 1 Envoys that were asked")
	}, func() string { _, out := m.ask("explain", "sidecar/web", "-n", "shop"); return out })

	_, out = m.ask("proxies", "--workers", name)
	require.Regexp(t, `(?m)^`+regexp.QuoteMeta(name)+` +[1-9]\d* +\d+.*%`, out, "each worker's connections and CPU, by its agent")

	// A policy changes filter chains only.
	m.apply(append(o.config(), authorization("anybody", "{rules: [{}]}"))...)
	eventually(t, "Envoy uses the policy", func() bool {
		_, out := m.ask("explain", "authorizationpolicy/anybody", "-n", "shop")
		return strings.Contains(out, "in use by 1 of 1 Envoys that were asked")
	}, func() string { _, out := m.ask("explain", "authorizationpolicy/anybody", "-n", "shop"); return out })

	file := filepath.Join(t.TempDir(), "report.tar.gz")
	status, out := m.ask("bug-report", name, "--file", file)
	require.Zero(t, status, out)
	require.NotContains(t, out, "not read proxies/", "all of its agent's pages answer")

	// Each change adds a listener; some of them are sampled.
	for i := 1; !strings.Contains(m.page("/metrics"), `moonsail_in_use_samples_total{result="in_use"}`); i++ {
		require.Less(t, i, 100, m.page("/metrics"))
		m.apply(withIngress(o.config(), replicaPort+10+i)...)
	}
}

// withIngress adds a port at which the replicas' sidecars listen.
func withIngress(docs []string, port int) []string {
	const before = "  egress: [{hosts: [\"~/*\"]}]"
	more := fmt.Sprintf("  - port: {number: %d, name: http-more, protocol: HTTP}\n    captureMode: NONE\n    defaultEndpoint: 0.0.0.0:%d\n", port, replicaAppPort)
	for i := range docs {
		docs[i] = strings.Replace(docs[i], before, more+before, 1)
	}
	return docs
}

// TestDrainNoticeSurvivesRestart checks that a control plane that starts while a workload drains receives its drain
// notice.
func TestDrainNoticeSurvivesRestart(t *testing.T) {
	abort := make(chan struct{})
	o := &rollout{t: t, protocol: "http", change: func(c *agent.Config) {
		c.Reannounce, c.MinDrain, c.Abort = 10*time.Millisecond, time.Hour, abort
	}}
	o.mesh = startMeshWith(t, server.RoutesAuto, func(o *controlplane.Options) { o.Absence = time.Millisecond }, o.config()...)
	o.add()
	o.mesh.apply(o.config()...)
	r := o.replicas[0]
	t.Cleanup(func() { close(abort) })
	r.cancel()
	eventually(t, "it has left", func() bool { return strings.Contains(r.log.String(), `msg="deregistered: `) }, r.log.String)
	leaves := func() bool { return strings.Contains(o.mesh.page("/debug/store"), `"DrainNotice": 1`) }
	require.True(t, leaves(), o.mesh.page("/debug/store"))
	o.mesh.stop()
	o.mesh.start()
	eventually(t, "the new control plane knows it", leaves, func() string { return o.mesh.page("/debug/store") })
}
