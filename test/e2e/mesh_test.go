package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/derive"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/logtext"
)

// mesh is a control plane over a directory of YAML.
type mesh struct {
	t        *testing.T
	dir      string
	strategy server.RouteStrategy
	log      *logtext.Buffer
	change   func(*controlplane.Options) // nil: nothing

	xds, http string // addresses, the same after a restart
	cancel    context.CancelFunc
	ended     chan error
}

// startMesh runs a control plane until the test ends.
func startMesh(t *testing.T, strategy server.RouteStrategy, config ...string) *mesh {
	t.Helper()
	return startMeshWith(t, strategy, nil, config...)
}

// startMeshWith is startMesh with changed options.
func startMeshWith(t *testing.T, strategy server.RouteStrategy, change func(*controlplane.Options), config ...string) *mesh {
	t.Helper()
	at := ownIP() + ":0" // the ports stay free until it is started again
	m := &mesh{t: t, dir: t.TempDir(), strategy: strategy, change: change, log: &logtext.Buffer{}, xds: at, http: at}
	m.write("mesh.yaml", config...)
	m.start()
	t.Cleanup(func() {
		m.stop()
		if t.Failed() {
			t.Logf("the control plane's log:\n%s", m.log)
		}
	})
	return m
}

// startMeshSplit is startMesh with the number of virtual hosts from which scopes are used; in other tests it is 1 with
// server.RoutesScoped.
func startMeshSplit(t *testing.T, strategy server.RouteStrategy, split int, config ...string) *mesh {
	t.Helper()
	return startMeshWith(t, strategy, func(o *controlplane.Options) { o.Sharding = fewBuckets(split) }, config...)
}

// fewBuckets splits route configurations with at least from virtual hosts.
func fewBuckets(from int) derive.Sharding { return derive.Sharding{From: from, Bits: 4} }

func (m *mesh) start() {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	listening, ended := make(chan [2]string, 1), make(chan error, 1)
	m.cancel, m.ended = cancel, ended
	o := controlplane.Options{
		ConfigDir: m.dir, XDSPlaintextAddr: m.xds, HTTPAddr: m.http, Mesh: model.DefaultMesh(), RouteStrategy: m.strategy, FetchAllowLoopback: true,
		Transport: transport(m.strategy),
		Log:       slog.New(slog.NewTextHandler(m.log, nil)),
		Listening: func(xds, http net.Addr) { listening <- [2]string{xds.String(), http.String()} },
	}
	o.Mesh.Delivery = model.Delivery(os.Getenv("E2E_OUTBOUND")) // empty: full
	if m.strategy == server.RoutesScoped {
		o.Sharding = fewBuckets(1)
	}
	if m.change != nil {
		m.change(&o)
	}
	go func() { ended <- controlplane.Run(ctx, o) }()
	select {
	case at := <-listening:
		m.xds, m.http = at[0], at[1]
	case err := <-ended:
		m.t.Fatalf("the control plane did not start: %v", err)
	}
}

// stop ends the control plane, unless it has been stopped.
func (m *mesh) stop() {
	m.t.Helper()
	if m.cancel == nil {
		return
	}
	m.cancel()
	m.cancel = nil
	require.NoError(m.t, await.From(m.t, m.ended))
}

// write replaces a file of the configuration in one step, as editors do. Without documents it removes the file.
func (m *mesh) write(name string, documents ...string) {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	if len(documents) == 0 {
		require.NoError(m.t, os.Remove(path))
		return
	}
	next := filepath.Join(m.t.TempDir(), name)
	require.NoError(m.t, os.WriteFile(next, []byte(strings.Join(documents, "\n---\n")), 0o600))
	require.NoError(m.t, os.Rename(next, path))
}

// apply writes the mesh's one file, and waits until every proxy has the change.
func (m *mesh) apply(documents ...string) changelog.Change {
	m.t.Helper()
	before := m.newest().Revision
	m.write("mesh.yaml", documents...)
	return m.awaitChange(before)
}

// awaitChange waits until a revision after another one is settled.
func (m *mesh) awaitChange(after model.Revision) changelog.Change {
	m.t.Helper()
	var c changelog.Change
	eventually(m.t, "the change has reached every proxy", func() bool {
		c = m.newest()
		return c.Revision > after && c.State == changelog.Distributed
	}, func() string { return fmt.Sprintf("%+v\n%s", c, describe(m.proxies())) })
	return c
}

// newest returns the newest change.
func (m *mesh) newest() changelog.Change {
	m.t.Helper()
	var answer struct{ Changes []changelog.Change }
	m.get("/debug/changes?n=1", &answer)
	if len(answer.Changes) == 0 {
		return changelog.Change{}
	}
	return answer.Changes[0]
}

func (m *mesh) proxies() []server.ProxyState {
	m.t.Helper()
	var answer struct{ Proxies []server.ProxyState }
	m.get("/debug/proxies?local", &answer)
	return answer.Proxies
}

// proxy returns one proxy's state; nil while it is not connected.
func (m *mesh) proxy(name string) *server.ProxyState {
	m.t.Helper()
	for _, p := range m.proxies() {
		if p.Name == name {
			return &p
		}
	}
	return nil
}

func (m *mesh) get(path string, into any) {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, "http://"+m.http+path, http.NoBody)
	require.NoError(m.t, err)
	resp, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(m.t, err)
	defer resp.Body.Close()
	require.Equal(m.t, http.StatusOK, resp.StatusCode, path)
	require.NoError(m.t, json.NewDecoder(resp.Body).Decode(into))
}

// client is a workload that calls others through its sidecar.
type client struct {
	*bareEnvoy
	name, ip string
	drain    time.Duration // of changed listeners; meanwhile they keep what they used
	workers  int           // threads of its Envoy; 0: one
	version  string        // Istio's, in its metadata; "": the agent's
	fewStats bool          // the statistics of users' sidecars
	at       string        // where its calls go; "": to meshPort
	// redirected: its sidecar receives connections as if they were intercepted.
	redirected bool
}

// meshPort is where sidecars accept their applications' calls, each at another address.
const meshPort = 15080

// newClient creates the name and address of a client, so that its Sidecar can be written.
func newClient(name string) *client { return &client{name: name, ip: ownIP()} }

// start runs the client's Envoy until the test ends, and waits until it serves.
func (c *client) start(t *testing.T, m *mesh, sotw bool) {
	t.Helper()
	c.startAt(t, m, m.xds, sotw)
}

// startAt is start with another address of the control plane.
func (c *client) startAt(t *testing.T, m *mesh, xds string, sotw bool) {
	t.Helper()
	mode := model.InterceptNone
	if c.redirected {
		mode = model.InterceptRedirect
	}
	c.bareEnvoy = startEnvoy(t, envoyOptions{xds: xds, sotw: sotw, drain: c.drain, workers: c.workers, fewStats: c.fewStats, proxy: &model.Proxy{
		Name: c.name, Namespace: "shop", IPs: []string{c.ip}, Labels: map[string]string{"app": c.name},
		DNSDomain: "shop.svc.cluster.local", Interception: mode, IstioVersion: c.version,
	}})
	c.awaitLive(t, func() string { return describe(m.proxies()) })
}

// url returns where the client's application sends its calls.
func (c *client) url() string { return cmp.Or(c.at, fmt.Sprintf("http://%s:%d/", c.ip, meshPort)) }

// sidecar returns the client's Sidecar: all HTTP services of the given hosts at one port.
func (c *client) sidecar(hosts ...string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: %[1]s, namespace: shop}
spec:
  workloadSelector: {labels: {app: %[1]s}}
  egress:
  - port: {number: %[2]d, name: http, protocol: HTTP}
    bind: %[3]s
    captureMode: NONE
    hosts: ["%[4]s"]`, c.name, meshPort, c.ip, strings.Join(hosts, `", "`))
}
