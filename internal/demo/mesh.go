package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/sidecar/agent"
)

// Istio's default ports of the control plane.
const (
	defaultXDSPort  = 15012
	defaultHTTPPort = 15014
)

// Timeouts, long enough for a slow machine.
const (
	startTimeout  = 90 * time.Second
	changeTimeout = 30 * time.Second
	stopTimeout   = 10 * time.Second
	pollInterval  = 20 * time.Millisecond
)

// maxWorkDir leaves room for the name of a Unix socket, whose path has at most 107 bytes.
// If the demo's directory is longer, sidecars use temporary ones.
const maxWorkDir = 90

// mesh is the running shop with its control plane. Its methods belong to one goroutine.
type mesh struct {
	// Fixed:
	dir       string // of the demo
	config    string // of the YAML
	envoy     string
	addresses Addresses
	control   *control
	spawner   *spawner
	probe     http.Client             // of readiness
	fail      context.CancelCauseFunc // ends the demo with a reason

	workloads []Workload
	apps      map[string]*process // by workload
	sidecars  map[string]*process
	plane     *process
	watchers  sync.WaitGroup // goroutines of watch
}

// watch ends the demo if a process ends unexpectedly.
func (m *mesh) watch(p *process) {
	m.watchers.Go(func() {
		<-p.done
		if !p.expected.Load() {
			m.fail(p.crash())
		}
	})
}

func (m *mesh) start(name string, args ...string) (*process, error) {
	p, err := m.spawner.start(name, args...)
	if err == nil {
		m.watch(p)
	}
	return p, err
}

func (m *mesh) write(files ...manifest) error {
	for _, f := range files {
		if err := write(m.config, f); err != nil {
			return fmt.Errorf("writing the shop's configuration: %w", err)
		}
	}
	return nil
}

// startPlane starts the control plane.
func (m *mesh) startPlane() (err error) {
	m.plane, err = m.start("control-plane", "serve", "--fetch-allow-loopback", "--config", m.config,
		"--xds-addr", m.control.xds, "--http-addr", m.control.http,
		"--ca-dir", m.authority(), "--token-auth-file", m.tokens())
	return err
}

// startApp starts the application of a workload, if it has one.
func (m *mesh) startApp(w Workload) (err error) {
	if !w.Serves() {
		return nil
	}
	m.apps[w.Name], err = m.start("app-"+w.Name, "demo", "app",
		"--name", w.Name, "--service", w.App, "--version", w.Version,
		"--listen", m.at(w, m.addresses.AppPort), "--sidecar", m.at(w, m.addresses.ServicePort))
	return err
}

// startSidecar starts the sidecar of a workload, described by the Pod in its file.
func (m *mesh) startSidecar(w Workload) (err error) {
	args := []string{
		"agent", "--pod", filepath.Join(m.config, workloadPath(w)), "--xds-address", m.control.xds,
		"--xds-plaintext=false", "--xds-root-cert", m.roots(), "--token-file", m.token(w.App),
		"--envoy", m.envoy,
	}
	if dir := filepath.Join(m.dir, "sidecars", w.Name); len(dir) <= maxWorkDir {
		args = append(args, "--work-dir", dir)
	}
	m.sidecars[w.Name], err = m.start("sidecar-"+w.Name, args...)
	return err
}

func (m *mesh) at(w Workload, port uint16) string {
	return net.JoinHostPort(m.addresses.IP(w), strconv.Itoa(int(port)))
}

// ready returns nil if the sidecar of a workload takes traffic and its application answers.
func (m *mesh) ready(ctx context.Context, w Workload) error {
	if err := m.ok(ctx, "http://"+m.at(w, agent.DefaultHealthPort)+"/healthz/ready"); err != nil {
		return fmt.Errorf("sidecar of %s: %w", w.Name, err)
	}
	if !w.Serves() {
		return nil
	}
	if err := m.ok(ctx, "http://"+m.at(w, m.addresses.AppPort)+"/healthz"); err != nil {
		return fmt.Errorf("%s: %w", w.Name, err)
	}
	if err := m.listens(ctx, w); err != nil {
		return fmt.Errorf("sidecar of %s: %w", w.Name, err)
	}
	return nil
}

func (m *mesh) ok(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := m.probe.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason)) // as much as can be read
	return fmt.Errorf("%s: %s", resp.Status, body)
}

func (m *mesh) allReady(ctx context.Context) error {
	errs := make([]error, len(m.workloads))
	var all sync.WaitGroup
	for i, w := range m.workloads {
		all.Go(func() { errs[i] = m.ready(ctx, w) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err // the first one is enough
		}
	}
	return nil
}

// awaitSync waits until all proxies are connected and synced.
func (m *mesh) awaitSync(ctx context.Context) error {
	return await(ctx, startTimeout, "all proxies to be synced", func(ctx context.Context) error {
		return m.control.synced(ctx, m.workloads)
	})
}

// change changes an object and waits until the last proxy has ACKed it.
func (m *mesh) change(ctx context.Context, kind model.Kind, name string, apply func() error) (timedChange, error) {
	before, err := m.control.newest(ctx)
	if err != nil {
		return timedChange{}, err
	}
	w := timedChange{written: time.Now()}
	if err := apply(); err != nil {
		return timedChange{}, err
	}
	key := model.Key{Kind: kind, Namespace: Namespace, Name: name}
	err = await(ctx, changeTimeout, fmt.Sprintf("%s to reach every proxy", key), func(ctx context.Context) (err error) {
		w.Change, err = m.control.find(ctx, before, key)
		return err
	})
	if err == nil && w.Proxies.Nacked > 0 {
		err = fmt.Errorf("%[2]s: refused by %[1]d proxies: see 'moonsail proxies'", w.Proxies.Nacked, key)
	}
	return w, err
}

// rewrite changes an object by writing its file.
func (m *mesh) rewrite(ctx context.Context, kind model.Kind, name string, f manifest) (timedChange, error) {
	return m.change(ctx, kind, name, func() error { return m.write(f) })
}

// timedChange is a change from the file to the last proxy.
type timedChange struct {
	changelog.Change
	written time.Time // just before the file was written
}

// total returns the time from the event to the last proxy's ACK.
func (w timedChange) total() time.Duration {
	_, total := w.Timeline.Split(time.Microsecond)
	return total
}

// stopSidecar drains and ends a sidecar, as the end of a Pod does.
func (m *mesh) stopSidecar(w Workload) {
	m.sidecars[w.Name].stop(nil)
	delete(m.sidecars, w.Name)
}

func (m *mesh) stopApp(w Workload) {
	m.apps[w.Name].stop(nil)
	delete(m.apps, w.Name)
}

// stop ends every process. Sidecars do not drain, since there are no requests any more.
func (m *mesh) stop() {
	var all sync.WaitGroup
	for name, p := range m.sidecars {
		all.Go(func() { p.stop(func() error { return m.quit(name) }) })
	}
	all.Wait()
	for _, p := range m.apps {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range m.apps {
		all.Go(func() { p.stop(nil) })
	}
	if m.plane != nil {
		all.Go(func() { m.plane.stop(nil) })
	}
	all.Wait()
	m.watchers.Wait()
	m.spawner.close()
	m.probe.CloseIdleConnections()
	m.control.client.CloseIdleConnections()
}

// quit asks a sidecar to end without draining.
func (m *mesh) quit(name string) error {
	for _, w := range m.workloads {
		if w.Name != name {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		url := "http://" + m.at(w, agent.DefaultStatusPort) + "/quitquitquit"
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := m.probe.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	return os.ErrNotExist
}

// await calls check until it returns nil. After timeout, the error has the subject
// and the last result of check.
func await(ctx context.Context, timeout time.Duration, what string, check func(context.Context) error) error {
	limit, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := check(limit)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(clock.Sleep(limit, pollInterval), context.DeadlineExceeded) {
			return fmt.Errorf("waited %s for %s: %w", timeout, what, err)
		}
	}
}
