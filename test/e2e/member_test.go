package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workload"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/logtext"
)

// Ports of a member: of its sidecar for requests, bytes and either, of its applications, and of its service, where its
// application calls the same ports of others.
const (
	memberHTTP, memberTCP, memberAuto    = 18080, 18081, 18082
	memberHTTPApp, memberTCPApp          = 19080, 19081
	serviceHTTP, serviceTCP, serviceAuto = 20080, 20081, 20082
)

// member is a workload with a sidecar that gets its certificate from the control plane.
type member struct {
	name, ip    string
	log         *logtext.Buffer
	backend     *backend
	annotations map[string]string
	heard       *overheard   // requests that reach the HTTP application
	called      atomic.Int64 // connections to the application that greets its clients
	admin       *envoy.Admin
}

func spiffeID(account string) string {
	return model.Identity{TrustDomain: model.DefaultTrustDomain, Namespace: "shop", ServiceAccount: account}.String()
}

// newMember creates the name and address of a member, so that the mesh can be written.
func newMember(name string) *member { return &member{name: name, ip: ownIP(), log: &logtext.Buffer{}} }

// config returns the configuration of the member's sidecar, which presents a token to the control plane and trusts the
// roots that it publishes.
func (w *member) config(t *testing.T, m *mutual, token string) agent.Config {
	t.Helper()
	concurrency := 1
	return agent.Config{
		Workload: workload.Workload{
			Name: w.name, Namespace: "shop", ServiceAccount: w.name, IPs: []string{w.ip},
			Labels:      map[string]string{"app": w.name, model.LabelTLSMode: model.TLSModeLabelIstio},
			Annotations: w.annotations,
		},
		Interception: model.InterceptNone, EnvoyPath: envoyBinary(t), Concurrency: &concurrency, WorkDir: shortDir(t),
		FetchAllowLoopback: true,
		XDS:                agent.XDS{Address: m.secure, RootCert: filepath.Join(m.caDir, ca.RootFile)},
		CA:                 agent.CA{TokenFile: fileWith(t, "token", []byte(token))},
		Log:                slog.New(slog.NewTextHandler(w.log, nil)),
	}
}

// start runs the member's sidecar until the test ends, and waits until it is ready.
func (w *member) start(t *testing.T, m *mutual) {
	t.Helper()
	w.run(t, w.config(t, m, w.name+"-token"))
	eventually(t, w.name+" is ready", func() bool { return strings.Contains(w.log.String(), "sidecar ready") },
		func() string { return w.log.String() + describe(m.proxies()) })
}

// run runs a sidecar until the test ends, ready or not.
func (w *member) run(t *testing.T, c agent.Config) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	abort, ended := make(chan struct{}), make(chan error, 1)
	c.Abort = abort
	go func() { ended <- agent.Run(ctx, c) }()
	w.admin = envoy.NewAdmin(w.ip + ":15000")
	t.Cleanup(func() {
		close(abort)
		cancel()
		await.From(t, ended) //nolint:errcheck // it was told to end, and returns no other error
		w.admin.Close()
		if t.Failed() {
			t.Logf("%s's log:\n%s", w.name, w.log)
		}
	})
}

// configured returns how often the member's Envoy has received clusters from the control plane; ok is false while it
// does not answer.
func (w *member) configured(t *testing.T) (n uint64, ok bool) {
	t.Helper()
	const name = "cluster_manager.cds.update_success"
	stats, err := w.admin.Stats(t.Context(), "^"+regexp.QuoteMeta(name)+"$")
	if err != nil {
		return 0, false
	}
	n, ok = stats[name]
	return n, ok
}

// applications runs an HTTP application and one that greets its clients.
func (w *member) applications(t *testing.T) {
	t.Helper()
	w.backend = &backend{app: app{name: w.name, version: "v1", ip: w.ip}, release: make(chan struct{})}
	listen := func(port int) net.Listener {
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("%s:%d", w.ip, port))
		require.NoError(t, err)
		return ln
	}
	w.heard = &overheard{Listener: listen(memberHTTPApp)}
	serveHTTP(t, w.heard, &http.Server{Handler: http.HandlerFunc(w.serve)}) //nolint:gosec // of a test
	echo := listen(memberTCPApp)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			w.called.Add(1)
			_, _ = io.WriteString(conn, "welcome\n")      // it speaks first
			_, _ = bufio.NewReader(conn).ReadString('\n') // unread bytes would reset the connection
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = echo.Close()
		await.From(t, done)
	})
}

// serve answers requests; it echoes upgraded connections.
func (w *member) serve(out http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") == "" {
		w.backend.answer(out, r)
		return
	}
	w.backend.remember(r)
	conn, buffered, err := http.NewResponseController(out).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	line, err := buffered.ReadString('\n')
	if err == nil {
		_, _ = io.WriteString(conn, line)
	}
}

// documents returns the member's Pod, with a service account, its service and Sidecar.
func (w *member) documents(account string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: shop}
spec:
  selector: {app: %[1]s}
  ports:
  - {name: http, port: %[8]d, targetPort: %[3]d}
  - {name: tcp, port: %[9]d, targetPort: %[4]d}
  - {name: any, port: %[10]d, targetPort: %[5]d}
---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: shop, labels: {app: %[1]s, security.istio.io/tlsMode: istio}}
spec: {serviceAccountName: %[11]s}
status: {podIP: %[2]s}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: %[1]s, namespace: shop}
spec:
  workloadSelector: {labels: {app: %[1]s}}
  ingress:
  - {port: {number: %[3]d, name: http, protocol: HTTP}, captureMode: NONE, defaultEndpoint: "0.0.0.0:%[6]d"}
  - {port: {number: %[4]d, name: tcp, protocol: TCP}, captureMode: NONE, defaultEndpoint: "0.0.0.0:%[7]d"}
  - {port: {number: %[5]d, name: any}, captureMode: NONE, defaultEndpoint: "0.0.0.0:%[6]d"}
  egress:
  - {port: {number: %[8]d, name: http, protocol: HTTP}, bind: %[2]s, captureMode: NONE, hosts: ["./*"]}
  - {port: {number: %[9]d, name: tcp, protocol: TCP}, bind: %[2]s, captureMode: NONE, hosts: ["./server.shop.svc.cluster.local"]}
  - {port: {number: %[10]d, name: any}, bind: %[2]s, captureMode: NONE, hosts: ["./server.shop.svc.cluster.local"]}`,
		w.name, w.ip, memberHTTP, memberTCP, memberAuto, memberHTTPApp, memberTCPApp, serviceHTTP, serviceTCP, serviceAuto, account)
}
