package pair

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
	"github.com/moonsail/moonsail/internal/lab/meshfiles"
	"github.com/moonsail/moonsail/internal/security/ca"
)

// Options are common to all pairs.
type Options struct {
	Programs child.Programs
	Envoy    string // path of Envoy
	// MeshConfig is the mesh's configuration (the ConfigMap istio), as YAML; may be empty.
	MeshConfig string
	// Services is the number of services in addition to the pairs', with three endpoints each that do not answer. The
	// Setup of a pair decides which of them it sees.
	Services int
	// ServeFlags are added to those of the control plane.
	ServeFlags []string
}

// Mesh is a running control plane with an application. Several goroutines may use its methods at the same time.
type Mesh struct {
	options Options
	dir     string // temporary: configuration, certificates, tokens, sidecars
	plane   *child.Process
	backend *child.Process

	mu    sync.Mutex // guards the fields below
	pairs int
	hosts int // addresses of workloads
}

// Start starts a control plane and an application.
func Start(ctx context.Context, o Options) (*Mesh, error) {
	dir, err := os.MkdirTemp("", "moonsail-pair-")
	if err != nil {
		return nil, err
	}
	m := &Mesh{options: o, dir: dir}
	if err := m.start(ctx); err != nil {
		m.Stop()
		return nil, err
	}
	return m, nil
}

func (m *Mesh) start(ctx context.Context) (err error) {
	if err := os.Mkdir(m.path("config"), 0o755); err != nil { //nolint:gosec // it holds no secrets
		return err
	}
	if err := m.reserveTokens(); err != nil {
		return err
	}
	if o := m.options; o.MeshConfig != "" {
		if err := m.write("mesh.yaml", meshObject(o.MeshConfig)); err != nil {
			return err
		}
	}
	if err := m.writeServices(); err != nil {
		return err
	}
	if m.backend, err = child.Start(ctx, "the application", commandLine(m.options.Programs.Lab, "backend")...); err != nil {
		return err
	}
	m.plane, err = child.Start(ctx, "the control plane", commandLine(m.options.Programs.Moonsail, append([]string{
		"serve", "--config", m.path("config"), "--xds-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--log-format", "json",
		"--ca-dir", m.path("ca"), "--token-auth-file", m.path("tokens"),
	}, m.options.ServeFlags...)...)...)
	return err
}

// writeServices writes the additional services.
func (m *Mesh) writeServices() error {
	if m.options.Services == 0 {
		return nil
	}
	place, err := meshfiles.NewDirectory(m.path("config/mesh"), m.path("staging"))
	if err != nil {
		return err
	}
	_, err = meshfiles.New(place, meshfiles.Shape{Services: m.options.Services, Replicas: 3, ServicePort: servicePort})
	return err
}

func (m *Mesh) path(name string) string { return filepath.Join(m.dir, name) }

func commandLine(program []string, args ...string) []string {
	return append(slices.Clone(program), args...)
}

// root returns the file with the mesh's roots, which the control plane writes.
func (m *Mesh) root() string { return filepath.Join(m.path("ca"), ca.RootFile) }

// Backend returns the address of the application, without any sidecar.
func (m *Mesh) Backend() string { return m.backend.Addr() }

// BackendPid returns the application's process ID.
func (m *Mesh) BackendPid() int { return m.backend.Pid() }

// Plane returns the control plane's process: its addresses, end and log.
func (m *Mesh) Plane() *child.Process { return m.plane }

// stopTime is how long the application and the control plane may take to end.
const stopTime = 3 * time.Second

// Stop ends the control plane and the application, and removes all files. Stop the pairs first.
func (m *Mesh) Stop() {
	for _, p := range []*child.Process{m.plane, m.backend} {
		if p != nil {
			p.Stop(stopTime)
		}
	}
	_ = os.RemoveAll(m.dir) // the system removes it in the end
}

// write writes objects to a file of the configuration in one step.
func (m *Mesh) write(name string, objects ...string) error {
	next := m.path(name + ".new")
	if err := os.WriteFile(next, []byte(strings.Join(objects, "\n---\n")), 0o644); err != nil { //nolint:gosec // it holds no secrets
		return err
	}
	return os.Rename(next, filepath.Join(m.path("config"), name))
}

// Workloads have tokens from the start, because the control plane reads tokens once.
const mostPairs = 64

func namespaceOf(n int) string { return fmt.Sprintf("pair-%d", n) }

func tokenOf(namespace, account string) string { return namespace + "-" + account }

func (m *Mesh) reserveTokens() error {
	var b strings.Builder
	for n := range mostPairs {
		for _, account := range []string{clientName, serverName} {
			fmt.Fprintf(&b, "%s,%s,%s\n", tokenOf(namespaceOf(n), account), namespaceOf(n), account)
		}
	}
	return os.WriteFile(m.path("tokens"), []byte(b.String()), 0o600)
}
