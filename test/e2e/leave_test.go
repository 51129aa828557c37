package e2e

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/controlplane"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/engine"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workload"
	"github.com/moonsail/moonsail/internal/xds/server"
	"github.com/moonsail/moonsail/test/logtext"
)

// Ports of a replica, at its own address: of its sidecar, and of its application.
const (
	replicaPort    = 18080
	replicaAppPort = 18081
)

// replica is a workload with a real agent.
type replica struct {
	name, ip string
	log      *logtext.Buffer
	app      *http.Server
	cancel   context.CancelFunc
	ended    chan error
	once     sync.Once
	err      error
}

// startReplica runs an application and its sidecar, and waits until the sidecar is ready.
func startReplica(t *testing.T, m *mesh, name string, change func(*agent.Config)) *replica {
	t.Helper()
	r := &replica{name: name, ip: ownIP(), log: &logtext.Buffer{}, ended: make(chan error, 1)}
	r.serve(t)
	c := agent.Config{
		Workload:     workload.Workload{Name: name, Namespace: "shop", IPs: []string{r.ip}, Labels: map[string]string{"app": "web"}},
		Interception: model.InterceptNone, XDS: agent.XDS{Address: m.xds, Plaintext: true}, EnvoyPath: envoyBinary(t),
		FetchAllowLoopback: true, Concurrency: new(int), WorkDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	*c.Concurrency = 1
	change(&c)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- agent.Run(ctx, c) }()
	t.Cleanup(func() { _ = r.end() })
	eventually(t, name+" is ready", func() bool { return strings.Contains(r.log.String(), "sidecar ready") }, r.log.String)
	return r
}

// serve runs the application.
func (r *replica) serve(t *testing.T) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(r.ip, strconv.Itoa(replicaAppPort)))
	require.NoError(t, err)
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	echo := echoServer()
	r.app = &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { //nolint:gosec // of a test
		if strings.HasPrefix(req.Header.Get("Content-Type"), "application/grpc") {
			echo.ServeHTTP(w, req)
			return
		}
		_, _ = io.WriteString(w, r.name)
	})}
	serveHTTP(t, ln, r.app)
}

// end ends the sidecar with SIGTERM, and then the application at once.
func (r *replica) end() error {
	r.once.Do(func() {
		r.cancel()
		r.err = <-r.ended
		_ = r.app.Close()
	})
	return r.err
}

// rollout is a service whose replicas are replaced one after the other.
type rollout struct {
	t        *testing.T
	mesh     *mesh
	protocol string // of the service's port: "http", "http2" or "grpc"
	fixed    []string
	change   func(*agent.Config)
	replicas []*replica
	started  int
}

func (o *rollout) add() {
	o.t.Helper()
	o.started++
	o.replicas = append(o.replicas, startReplica(o.t, o.mesh, fmt.Sprintf("web-%d", o.started), o.change))
}

// config returns the mesh with the listed replicas.
func (o *rollout) config() []string {
	docs := append(slices.Clone(o.fixed), fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: %s, port: %d, targetPort: %d}]}`, o.protocol, meshPort, replicaPort),
		fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  ingress:
  - port: {number: %d, name: %s, protocol: %s}
    captureMode: NONE
    defaultEndpoint: 0.0.0.0:%d
  egress: [{hosts: ["~/*"]}]`, replicaPort, o.protocol, strings.ToUpper(o.protocol), replicaAppPort),
		routes("web", "{route: [{destination: {host: web}}], retries: {attempts: 0}}"))
	for _, r := range o.replicas {
		docs = append(docs, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, labels: {app: web}}
status: {podIP: %s}`, r.name, r.ip))
	}
	return docs
}

// load is calls of a client that continue until they are stopped.
type load interface {
	stop()
	failed() (calls int, failures []string)
}

func startRollout(t *testing.T, protocol string, change func(*agent.Config), plane func(*controlplane.Options)) (*rollout, []load) {
	t.Helper()
	clients := []*client{newClient("one"), newClient("two")}
	o := &rollout{t: t, protocol: protocol, change: change}
	for _, c := range clients {
		o.fixed = append(o.fixed, c.sidecar("./*"))
	}
	o.mesh = startMeshWith(t, server.RoutesAuto, plane, o.config()...)
	o.add()
	o.add()
	o.mesh.apply(o.config()...)
	var calls []load
	for _, c := range clients {
		c.start(t, o.mesh, false)
		if protocol == "grpc" {
			calls = append(calls, startStreams(t, c, "web"))
			continue
		}
		l := startTraffic(t, c, "web")
		l.requireOnly("web-1", "web-2")
		calls = append(calls, l)
	}
	return o, calls
}

// restarts returns how many replicas are replaced: a few, or $E2E_RESTARTS.
func restarts(t *testing.T) int {
	t.Helper()
	text := os.Getenv("E2E_RESTARTS")
	if text == "" {
		return 5
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

var leftLine = regexp.MustCompile(`msg="deregistered: (\d+) proxies ACKed in ([^"]+)"`)

// TestRollingRestarts replaces replicas under constant calls without retries. The source lists each replica until it
// has ended. No call may fail.
func TestRollingRestarts(t *testing.T) {
	for _, protocol := range []string{"http", "http2", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			o, calls := startRollout(t, protocol, func(*agent.Config) {}, func(o *controlplane.Options) { o.Absence = time.Millisecond })
			var took []time.Duration
			for n := range restarts(t) {
				if n > 0 && n%20 == 0 {
					t.Logf("%d of %d restarts are over", n, restarts(t))
				}
				o.add()
				o.mesh.apply(o.config()...)
				oldest := o.replicas[0]
				require.NoError(t, oldest.end(), oldest.log)
				left := leftLine.FindStringSubmatch(oldest.log.String())
				require.NotNil(t, left, oldest.log)
				require.GreaterOrEqual(t, left[1], "2", "both clients had it")
				d, err := time.ParseDuration(left[2])
				require.NoError(t, err)
				took = append(took, d)
				o.replicas = o.replicas[1:]
				o.mesh.apply(o.config()...)
			}
			slices.Sort(took)
			total := 0
			for _, l := range calls {
				l.stop()
				n, failures := l.failed()
				total += n
				require.Empty(t, failures, "of %d calls", n)
			}
			t.Logf("%d restarts, %d calls, none failed; leaving took %s at the median, %s at most", len(took), total, took[len(took)/2], took[len(took)-1])
		})
	}
}

// TestFixedSleepFails shows why a fixed sleep is not enough: the source removes a replica when it begins to end, and
// the replica ends after a sleep. If the sleep is shorter than the change takes, calls fail.
func TestFixedSleepFails(t *testing.T) {
	sleep := func(c *agent.Config) {
		none, short := time.Duration(0), 100*time.Millisecond
		c.LeaveTimeout, c.DrainTime, c.MinDrain = &none, &short, short
	}
	o, calls := startRollout(t, "http", sleep, func(o *controlplane.Options) {
		o.Debounce = engine.Debounce{After: time.Second, Max: time.Second}
	})
	failed := 0
	for range 5 { // on a busy machine a replica may take longer to end than the change does
		o.add()
		o.mesh.apply(o.config()...)
		oldest := o.replicas[0]
		o.replicas = o.replicas[1:]
		before := o.mesh.newest().Revision
		o.mesh.write("mesh.yaml", o.config()...)
		require.NoError(t, oldest.end(), oldest.log)
		o.mesh.awaitChange(before)
		for _, l := range calls {
			_, failures := l.failed()
			failed += len(failures)
		}
		if failed > 0 {
			break
		}
	}
	for _, l := range calls {
		l.stop()
		_, failures := l.failed() // failures are expected
		failed += len(failures)
	}
	require.NotZero(t, failed, "a sleep that is too short costs calls")
}
