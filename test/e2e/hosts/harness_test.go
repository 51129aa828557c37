//go:build linux

package hosts

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/test/await"
	"github.com/moonsail/moonsail/test/labtest"
	"github.com/moonsail/moonsail/test/logtext"
	"github.com/moonsail/moonsail/test/netns"
)

// patience is the time limit of conditions, long enough for a busy machine. No test draws conclusions from how long
// something took.
const (
	patience = 3 * time.Minute
	lookAt   = 20 * time.Millisecond
)

// eventually waits until look returns no error.
func eventually(t *testing.T, what string, look func() error) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(lookAt)
	defer tick.Stop()
	for {
		err := look()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
	}
}

// process is a moonsail process on a host.
type process struct {
	cmd  *exec.Cmd
	log  *logtext.Buffer
	done chan struct{}
	err  error // set once done is closed
}

// run starts moonsail on a host. The test ends it.
func run(t *testing.T, h *netns.Host, args ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...) // it is ended by start
	cmd.Env = append(os.Environ(), labtest.AsMoonsail)
	return start(t, h, cmd)
}

// start starts a process of moonsail on a host. The test ends it.
func start(t *testing.T, h *netns.Host, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, log: &logtext.Buffer{}, done: make(chan struct{})}
	h.Do(t, func() { // a process runs in the namespace of the thread that starts it
		cmd.Stdout, cmd.Stderr = p.log, p.log
		p.err = cmd.Start()
	})
	require.NoError(t, p.err)
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		await.From(t, p.done)
		if t.Failed() {
			t.Logf("moonsail %s:\n%s", strings.Join(cmd.Args[1:], " "), p.log)
		}
	})
	return p
}

// end sends a process SIGTERM, and returns how it ended.
func (p *process) end(t *testing.T) error {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.done:
		return p.err
	case <-time.After(patience):
		t.Fatalf("it does not end:\n%s", p.log)
	}
	return nil
}

// mesh is a network with a control plane.
type mesh struct {
	t       *testing.T
	net     *netns.Network
	dir     string // of the configuration
	control *netns.Host
}

func startMesh(t *testing.T, config ...string) *mesh {
	t.Helper()
	return startMeshOn(t, netns.New(t, false), config...)
}

func startMeshOn(t *testing.T, on *netns.Network, config ...string) *mesh {
	t.Helper()
	m := &mesh{t: t, net: on, dir: t.TempDir()}
	m.control = m.net.Host()
	m.write("mesh.yaml", config...)
	run(t, m.control, append([]string{"serve", "--config", m.dir, "--xds-plaintext-addr", at(m.control, 15010), "--http-addr", "127.0.0.1:15014"}, serveFlags...)...)
	eventually(t, "the control plane is ready", func() error {
		status, _, err := get(m.control, "http://127.0.0.1:15014/ready", "")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("status %d", status)
		}
		return err
	})
	return m
}

// serveFlags are more flags of the control plane.
var serveFlags []string

func at(h *netns.Host, port int) string {
	return netip.AddrPortFrom(h.IP, uint16(port)).String()
}

// write writes documents to a file of the configuration in one step.
func (m *mesh) write(name string, documents ...string) {
	m.t.Helper()
	next := filepath.Join(m.t.TempDir(), name)
	require.NoError(m.t, os.WriteFile(next, []byte(strings.Join(documents, "\n---\n")), 0o600))
	require.NoError(m.t, os.Rename(next, filepath.Join(m.dir, name)))
}

// workload is an application and its sidecar, on a host.
type workload struct {
	*netns.Host
	name  string
	agent *process
}

// appPort is where applications listen.
const appPort = 8080

// workload adds a workload of an app's service; flags are the agent's.
func (m *mesh) workload(app string, flags ...string) *workload {
	m.t.Helper()
	return m.workloadAt(app, func(h *netns.Host) netip.Addr { return h.IP }, flags...)
}

// workloadAt is workload with a choice of the host's addresses: of returns the address of the Pod and its endpoint.
func (m *mesh) workloadAt(app string, of func(*netns.Host) netip.Addr, flags ...string) *workload {
	m.t.Helper()
	w := &workload{Host: m.net.Host(), name: app + "-1"}
	ip := of(w.Host)
	family := "IPv4"
	if ip.Is6() {
		family = "IPv6"
	}
	m.write(w.name+".yaml", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: shop, labels: {app: %[2]s}}
spec: {containers: [{name: app, ports: [{containerPort: 8080}]}]}
status: {podIP: "%[3]s", phase: Running}`, w.name, app, ip), fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[2]s, namespace: shop, labels: {kubernetes.io/service-name: %[2]s}}
addressType: %[4]s
ports: [{name: http, port: 8080}, {name: tcp, port: 8080}]
endpoints: [{addresses: ["%[3]s"], conditions: {ready: true}, targetRef: {kind: Pod, name: %[1]s, namespace: shop}}]`, w.name, app, ip, family))
	for _, port := range []int{appPort, excludedPort} {
		serve(m.t, w.Host, port, w.name)
	}
	w.start(m, append([]string{"--ip", ip.String()}, flags...)...)
	return w
}

// start runs the sidecar, and waits until it is ready.
func (w *workload) start(m *mesh, flags ...string) {
	m.t.Helper()
	binary, err := envoy.Find("")
	require.NoError(m.t, err)
	app, _, _ := strings.Cut(w.name, "-")
	args := []string{
		"agent", "--intercept", "--name", w.name, "--namespace", "shop", "--labels", "app=" + app,
		"--xds-address", at(m.control, 15010), "--envoy", binary.Path, "--concurrency", "1",
	}
	w.agent = run(m.t, w.Host, append(args, flags...)...)
	m.awaitReady(w)
}

// awaitReady waits until a workload's sidecar is ready.
func (m *mesh) awaitReady(w *workload) {
	m.t.Helper()
	eventually(m.t, w.name+" is ready", func() error {
		select {
		case <-w.agent.done:
			m.t.Fatalf("it has ended: %v\n%s", w.agent.err, w.agent.log)
		default:
		}
		status, text, err := get(w.Host, "http://127.0.0.1:15021/healthz/ready", "")
		if err == nil && status != http.StatusOK {
			err = errors.New(text)
		}
		return err
	})
}
