package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/envoy"
)

// ErrForced is what Run returns when connections may have been cut: it was told to end
// at once, or Envoy had to be killed.
var ErrForced = errors.New("the sidecar was ended by force")

// agent is one running sidecar.
type agent struct {
	// read-only after Run has set them
	*settings
	binary    string
	bootstrap string // path of the file
	admin     *envoy.Admin
	metrics   *metrics
	started   time.Time
	quit      chan struct{} // closed by POST /quitquitquit

	quitOnce sync.Once
	draining atomic.Bool
	everSeen atomic.Bool // it was ready once, so that others may call it
	leaving  leaving
}

// Run runs a sidecar until ctx ends, drains it then, and returns nil; ErrForced if it was
// ended by force; or why it could not be started. No process and no goroutine is left.
//
// Goroutines: this one supervises; one per status server; one per Envoy process to wait
// for it, one to read its output, one to watch it become ready.
func Run(ctx context.Context, c Config) error {
	s, err := c.resolve()
	if err != nil {
		return err
	}
	s.nameInstance()
	found, err := envoy.Find(c.EnvoyPath)
	if err != nil {
		return err
	}
	a := &agent{
		settings: s,
		binary:   found.Path,
		admin:    envoy.NewAdmin(s.adminAddr),
		metrics:  newMetrics(),
		started:  time.Now(),
		quit:     make(chan struct{}),
	}
	defer a.admin.Close()
	cleanup, err := a.writeBootstrap()
	if err != nil {
		return err
	}
	defer cleanup()
	servers, err := a.serveStatus(ctx)
	if err != nil {
		return err
	}
	defer servers.close()
	a.log.Info("sidecar starting", "node", s.node.id, "cluster", s.node.cluster, "envoy", found.Path,
		"xds", s.XDS.Address, "concurrency", s.concurrency, "admin", s.adminAddr, "bind", s.bind)
	return a.supervise(ctx)
}

// writeBootstrap writes the bootstrap where only we can read it: metadata may hold what
// users would not show.
func (a *agent) writeBootstrap() (cleanup func(), err error) {
	content, err := a.bootstrapJSON()
	if err != nil {
		return nil, err
	}
	dir, cleanup := a.WorkDir, func() {}
	if dir == "" {
		if dir, err = os.MkdirTemp("", "moonsail-agent-"); err != nil {
			return nil, fmt.Errorf("no place for Envoy's bootstrap: %w: set --work-dir", err)
		}
		cleanup = func() { _ = os.RemoveAll(dir) }
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("no place for Envoy's bootstrap: %w: correct --work-dir", err)
	}
	a.bootstrap = filepath.Join(dir, "envoy-bootstrap.json")
	if err := os.WriteFile(a.bootstrap, content, 0o600); err != nil {
		cleanup()
		return nil, fmt.Errorf("cannot write Envoy's bootstrap: %w: correct --work-dir", err)
	}
	return cleanup, nil
}
