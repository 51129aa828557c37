package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/security/ca"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// part is a process of the mesh that can be killed, paused and started again.
type part struct {
	name    string
	argv    []string
	log     *os.File
	crashed func(name string, err error) // receives each process that ends although no fault ends it
	watched *sync.WaitGroup              // of the goroutines that wait for the end of processes

	mu      sync.Mutex // guards the fields below
	process *child.Process
	started time.Time
	ending  *child.Process // that is being ended on purpose
}

func (p *part) start() error {
	process, err := child.Launch(p.name, p.log, p.argv...)
	if err != nil {
		return err
	}
	p.watched.Go(func() { p.watch(process) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process, p.started = process, time.Now()
	return nil
}

// watch waits for the end of a process.
func (p *part) watch(process *child.Process) {
	<-process.Done()
	p.mu.Lock()
	meant := p.ending == process
	p.mu.Unlock()
	if !meant {
		p.crashed(p.name, process.Ended())
	}
}

// end ends the process on purpose, unless it has ended by itself.
func (p *part) end(how func(*child.Process)) {
	process, _ := p.running()
	if process == nil || process.Ended() != nil {
		return
	}
	p.mu.Lock()
	p.ending = process
	p.mu.Unlock()
	how(process)
}

// running returns the process that runs now, or ran last, and when it was started.
func (p *part) running() (*child.Process, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process, p.started
}

func (p *part) pid() int {
	process, _ := p.running()
	return process.Pid()
}

func (p *part) kill() { p.end((*child.Process).Kill) }

// pause stops a process where it is until the returned function is called.
func pause(pid int) (resume func(), err error) {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }, nil // it may have been killed
}

// plane is a control plane.
type plane struct {
	part

	number int
	xds    string   // host:port
	http   string   // host:port
	server *relay   // to the API server; nil: the source is files
	next   []string // command line of the revision that it is upgraded to
}

// sidecar is an agent with its Envoy.
type sidecar struct {
	part

	workload string
	ip       string
	relay    *relay // to the control planes' streams
	ca       *relay // to their CA
	admin    *envoy.Admin
}

// processes are all parts of a mesh.
type processes struct {
	layout
	dir      string // temporary
	options  *Options
	planes   []*plane
	sidecars []*sidecar
	server   *part    // the API server; nil: files
	cluster  *cluster // that API server's client
	serverAt string
	root     *root        // that signs certificates; after the start only a rotation uses it
	client   *http.Client // of pages
	crashed  func(name string, err error)
	watched  sync.WaitGroup

	mu      sync.Mutex             // guards targets
	targets map[string]*sync.Mutex // each is held while a fault concerns the target
}

func (m *processes) path(parts ...string) string {
	return filepath.Join(append([]string{m.dir}, parts...)...)
}

// newPart creates the log of a part, in place of that of an earlier run.
func (m *processes) newPart(name string, argv ...string) (part, error) {
	log, err := os.OpenFile(filepath.Join(m.options.logs(m.dir), name+".log"), os.O_CREATE|os.O_TRUNC|os.O_APPEND|os.O_WRONLY, 0o600)
	return part{name: name, argv: argv, log: log, crashed: m.crashed, watched: &m.watched}, err
}

// Time limits of starts, long enough for a busy machine.
const (
	startTime = 2 * time.Minute
	pollEvery = 50 * time.Millisecond
)

// endedError is the error of a process that has ended: waiting for it is in vain.
type endedError struct{ error }

// ended returns the error with which a part has ended, or nil.
func (p *part) ended() error {
	process, _ := p.running()
	if err := process.Ended(); err != nil {
		return endedError{err}
	}
	return nil
}

// await calls check until it returns nil, or the error of a process that has ended.
func await(ctx context.Context, limit time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check(ctx)
		var ended endedError
		if err == nil || errors.As(err, &ended) {
			return err
		}
		if clock.Sleep(ctx, pollEvery) != nil {
			return fmt.Errorf("%s: not within %s: %w", what, limit, err)
		}
	}
}

// startServer starts the API server, creates the namespace, and returns the kubeconfig.
func (m *processes) startServer(ctx context.Context) (kubeconfig string, err error) {
	kubeconfig = m.path("kubeconfig")
	port, err := keptPort()
	if err != nil {
		return "", err
	}
	argv := slices.Concat(m.options.APIServer, []string{"--dir", m.path("kube"), "--port", port, "--kubeconfig", kubeconfig, "--pod-cidr", m.subnet + "0/24"})
	p, err := m.newPart("api-server", argv...)
	if err != nil {
		return "", err
	}
	m.server, m.serverAt = &p, net.JoinHostPort("127.0.0.1", port)
	if err := m.server.start(); err != nil {
		return "", err
	}
	return kubeconfig, await(ctx, startTime, "the API server", func(ctx context.Context) error {
		if err := m.server.ended(); err != nil {
			return err
		}
		if _, err := os.Stat(kubeconfig); err != nil {
			return err
		}
		m.cluster, err = connectCluster(kubeconfig)
		if err != nil {
			return err
		}
		if err = m.cluster.put(ctx, "", namespaceObject); err != nil {
			m.cluster.close()
		}
		return err
	})
}

// keptPort returns a free port that the kernel does not assign to processes that request any port, so that a killed
// server can use it again.
func keptPort() (string, error) {
	for port := 21_000 + os.Getpid()%10_000; port < 32_000; port++ {
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil { //nolint:noctx // it takes no time
			return strconv.Itoa(port), l.Close()
		}
	}
	return "", errors.New("127.0.0.1: no port between 21000 and 32000 is free")
}

// writeTokens writes the tokens of all workloads: one file with all of them, and one for each.
func (m *processes) writeTokens() error {
	var all strings.Builder
	for _, name := range m.proxies() {
		token := "token-" + name
		fmt.Fprintf(&all, "%s,%s,%s\n", token, namespace, accountOf(name))
		if err := os.WriteFile(m.path("token-"+name), []byte(token), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(m.path("tokens"), []byte(all.String()), 0o600)
}

// addPlane describes a control plane that reads source: "--config DIR", or a kubeconfig, through a relay.
func (m *processes) addPlane(n int, config, kubeconfig string) error {
	p := &plane{number: n, xds: at(m.planeIP(n), planePort), http: at(m.planeIP(n), planePort+2)}
	args := []string{
		"--xds-addr", p.xds, "--http-addr", p.http, "--log-format", "json", "--token-auth-file", m.path("tokens"), "--xds-cert-names", m.planeIP(n),
	}
	for other := 1; other <= planes; other++ {
		if other != n {
			args = append(args, "--peer", at(m.planeIP(other), planePort))
		}
	}
	if kubeconfig == "" {
		args = append(args, "--config", config, "--ca-dir", m.path("ca"))
	} else {
		var err error
		if p.server, err = newRelay(0, m.serverAt); err != nil {
			return err
		}
		text, err := os.ReadFile(kubeconfig)
		if err != nil {
			return err
		}
		own := m.path(fmt.Sprintf("kubeconfig-%d", n))
		if err := os.WriteFile(own, []byte(strings.ReplaceAll(string(text), m.serverAt, p.server.addr())), 0o600); err != nil {
			return err
		}
		args = append(args, "--kubeconfig", own, "--peer-service", "")
	}
	p.next = slices.Concat(m.options.Programs.Moonsail, otherOptions, args)
	if m.options.Next != nil {
		p.next = slices.Concat(m.options.Next, []string{"serve"}, args)
	}
	var err error
	p.part, err = m.newPart(fmt.Sprintf("control-plane-%d", n), slices.Concat(m.options.Programs.Moonsail, []string{"serve"}, args)...)
	m.planes = append(m.planes, p)
	return err
}

// otherOptions begin the command line of an upgraded control plane if Options.Next is nil. They select the other
// implementation of xDS streams.
var otherOptions = []string{"serve", "--xds-transport", "grpc"}

// startPlane starts a control plane, and waits until it serves.
func (m *processes) startPlane(ctx context.Context, p *plane) error {
	if err := p.start(); err != nil {
		return err
	}
	return m.awaitPlane(ctx, p)
}

func (m *processes) awaitPlane(ctx context.Context, p *plane) error {
	return await(ctx, startTime, p.name, func(ctx context.Context) error {
		if err := p.ended(); err != nil {
			return err
		}
		return m.ok(ctx, "http://"+p.http+"/ready")
	})
}

// ok returns nil if a page answers 200.
func (m *processes) ok(ctx context.Context, url string) error {
	_, err := m.page(ctx, url)
	return err
}

// pageTime bounds the request of a page.
const pageTime = 2 * time.Second

// notFound is the error of a page that answers 404.
var errNotFound = errors.New("404")

func (m *processes) page(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusNotFound:
		return nil, errNotFound
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: %s: %.200s", url, resp.Status, b)
	}
	return b, nil
}

// addSidecar describes the sidecar of a workload.
func (m *processes) addSidecar(i int, name, pod string) error {
	var targets []string
	for _, p := range m.planes {
		targets = append(targets, p.xds)
	}
	r, err := newRelay(i, targets...)
	if err != nil {
		return err
	}
	toCA, err := newRelay(i, targets...)
	if err != nil {
		return errors.Join(err, r.stop())
	}
	s := &sidecar{workload: name, ip: m.ip(name), relay: r, ca: toCA, admin: envoy.NewAdmin(at(m.ip(name), adminPort))}
	m.sidecars = append(m.sidecars, s)
	s.part, err = m.newPart("sidecar-"+name, slices.Concat(m.options.Programs.Moonsail, []string{
		"agent", "--pod", pod, "--log-format", "json", "--xds-address", r.addr(), "--xds-plaintext=false",
		"--ca-address", toCA.addr(), "--cert-ttl", certTTL.String(),
		"--xds-root-cert", m.path("ca", ca.RootFile), "--token-file", m.path("token-" + name), "--envoy", m.options.Envoy,
		"--work-dir", m.path("sidecars", name), "--drain-time", "0s", "--leave-timeout", "0s",
	})...)
	return err
}

func (m *processes) sidecarOf(workload string) *sidecar {
	i := slices.IndexFunc(m.sidecars, func(s *sidecar) bool { return s.workload == workload })
	return m.sidecars[i]
}

// awaitSidecar waits until a sidecar takes traffic.
func (m *processes) awaitSidecar(ctx context.Context, s *sidecar) error {
	return await(ctx, startTime, s.name, func(ctx context.Context) error {
		if err := s.ended(); err != nil {
			return err
		}
		return m.ok(ctx, "http://"+at(s.ip, readyPort)+"/healthz/ready")
	})
}

// envoyPid returns the process id of a sidecar's Envoy, the only child of its agent.
func (s *sidecar) envoyPid() (int, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.pid()))
	if err != nil {
		return 0, err
	}
	for _, path := range tasks {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		if f := strings.Fields(string(b)); len(f) > 0 {
			return strconv.Atoi(f[0])
		}
	}
	return 0, fmt.Errorf("%s: has no Envoy", s.name)
}

// stopAll ends all processes.
func (m *processes) stopAll() {
	var all sync.WaitGroup
	stop := func(p *part) {
		if process, _ := p.running(); process != nil {
			_ = syscall.Kill(process.Pid(), syscall.SIGCONT) // it may have ended
			all.Go(p.kill)
		}
	}
	for _, s := range m.sidecars {
		stop(&s.part)
	}
	all.Wait()
	for _, p := range m.planes {
		stop(&p.part)
	}
	if m.server != nil {
		stop(m.server)
	}
	all.Wait()
	m.watched.Wait()
	if m.server != nil {
		_ = m.server.log.Close() // what it has is lost with the process
	}
	for _, s := range m.sidecars {
		_, _ = s.relay.stop(), s.ca.stop() // nothing uses them any more
		s.admin.Close()
		_ = s.log.Close()
	}
	for _, p := range m.planes {
		if p.server != nil {
			_ = p.server.stop() // as above
		}
		_ = p.log.Close()
	}
	if m.cluster != nil {
		m.cluster.close()
	}
	m.client.CloseIdleConnections()
}
