package e2e

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workload"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/logtext"
)

// envoyOptions configure a bare Envoy, one without an agent.
type envoyOptions struct {
	proxy *model.Proxy
	xds   string // the control plane: a path, or host:port
	sotw  bool
	drain time.Duration // how long connections of a changed listener may last

	workers  int  // threads; 0: one
	fewStats bool // the statistics of users' sidecars
}

// bareEnvoy is an Envoy with the agent's bootstrap. Its admin interface is a Unix socket, so that any number can run at
// once.
type bareEnvoy struct {
	admin   *envoy.Admin
	socket  string // of the admin interface
	process *envoy.Process
	log     *logtext.Buffer
	parts   map[string]dump // of the last dump, by text; for one goroutine
}

// startEnvoy runs an Envoy until the test ends.
func startEnvoy(t *testing.T, o envoyOptions) *bareEnvoy {
	t.Helper()
	dir := shortDir(t)
	path := filepath.Join(dir, "bootstrap.json")
	require.NoError(t, os.WriteFile(path, bootstrap(t, o, filepath.Join(dir, "admin")), 0o600))
	e := &bareEnvoy{log: &logtext.Buffer{}, socket: "unix://" + filepath.Join(dir, "admin")}
	e.admin = envoy.NewAdmin(e.socket)
	process, err := envoy.Start(envoy.Options{
		Path: envoyBinary(t), Bootstrap: path, Concurrency: max(1, o.workers), DrainTime: o.drain, LogLevel: "warning", Output: e.log,
	})
	require.NoError(t, err)
	e.process = process
	t.Cleanup(func() {
		e.admin.Close()
		process.Kill()
		if t.Failed() {
			t.Logf("Envoy's log:\n%s", e.log)
		}
	})
	return e
}

func bootstrap(t *testing.T, o envoyOptions, admin string) []byte {
	t.Helper()
	p := o.proxy
	w := workload.Workload{
		Name: p.Name, Namespace: p.Namespace, IPs: p.IPs, Labels: p.Labels,
		ServiceAccount: p.ServiceAccount, Locality: p.Locality,
	}
	for name, port := range p.NamedPorts {
		w.Ports = append(w.Ports, workload.Port{Name: name, ContainerPort: port, Protocol: "TCP"})
	}
	metadata := map[string]any{"MOONSAIL_FILES": false} // without an agent to read them
	if p.IstioVersion != "" {
		metadata["ISTIO_VERSION"] = p.IstioVersion
	}
	xds := o.xds
	if strings.HasPrefix(xds, "/") {
		xds = "unix://" + xds
	}
	text, err := agent.Bootstrap(agent.Config{
		Workload: w, Domain: p.ClusterDomain(), Interception: p.Interception, Metadata: metadata,
		XDS: agent.XDS{Address: xds, Plaintext: true}, Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	var b map[string]any
	require.NoError(t, json.Unmarshal(text, &b))
	b["admin"].(map[string]any)["address"] = map[string]any{"pipe": map[string]any{"path": admin}}
	delete(b["static_resources"].(map[string]any), "listeners")
	if o.fewStats {
		b["stats_flush_interval"] = "0.5s" // measurements of memory wait for the next gauges
	} else {
		delete(b, "stats_config") // all statistics, under their full names
		delete(b, "deferred_stat_options")
	}
	if o.sotw {
		b["dynamic_resources"].(map[string]any)["ads_config"].(map[string]any)["api_type"] = "GRPC"
	}
	out, err := json.Marshal(b)
	require.NoError(t, err)
	return out
}

// stats returns counters and gauges; empty while Envoy does not answer.
func (e *bareEnvoy) stats(t *testing.T, filter string) map[string]uint64 {
	t.Helper()
	stats, err := e.admin.Stats(t.Context(), filter)
	if err != nil {
		return nil
	}
	return stats
}

// awaitLive waits until Envoy serves: it has its first configuration, and its workers listen. The state "live" alone
// comes earlier.
func (e *bareEnvoy) awaitLive(t *testing.T, why func() string) {
	t.Helper()
	eventually(t, "Envoy goes live", func() bool {
		return e.admin.Ready(t.Context()) == nil && e.stats(t, "workers_started$")["listener_manager.workers_started"] == 1
	}, why)
}

// rejected returns the counters of refused updates that are not zero.
func (e *bareEnvoy) rejected(t *testing.T) map[string]uint64 {
	t.Helper()
	stats, err := e.admin.Stats(t.Context(), `update_rejected$`)
	require.NoError(t, err)
	for name, n := range stats {
		if n == 0 {
			delete(stats, name)
		}
	}
	return stats
}
