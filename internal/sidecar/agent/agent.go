package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/sidecar/agent/bootstrappatch"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
	"github.com/moonsail/moonsail/internal/sidecar/agent/istiometrics"
	"github.com/moonsail/moonsail/internal/sidecar/agent/nameserver"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
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
	identity  *identity.Renewer      // nil: the workload has no identity
	names     *nameserver.Table      // nil: questions are not captured
	talk      *bootstrappatch.Stream // of the bootstrap; nil: EnvoyFilters change nothing of it
	metrics   *metrics
	started   time.Time
	quit      chan struct{} // closed by POST /quitquitquit

	quitOnce       sync.Once
	draining       atomic.Bool
	everSeen       atomic.Bool // it was ready once, so that others may call it
	deregistration deregistration
	// manySeries: it was said that there are nearly as many series as may be, by side.
	manySeries [2]atomic.Bool
	live       atomic.Pointer[istiometrics.Live] // what was told of the present Envoy's connections

	workerWatch workerWatch
}

// Run runs a sidecar until ctx ends, drains it then, and returns nil; ErrForced if it was
// ended by force; or why it could not be started. No process and no goroutine is left.
//
// Goroutines: this one supervises; one per status server; one per Envoy process to wait
// for it, one to read its output, one to watch it become ready; with an identity, one that
// renews certificates; those of the server for Envoy, and, where plugins have modules to be fetched,
// one that takes them from the control plane, one that reads its stream, one that tries again what failed, and up to four that fetch; where EnvoyFilters change the bootstrap, one that watches them; with questions captured, one that takes
// names from the control plane, and those of the DNS proxy.
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
	return a.run(ctx)
}

// run is Run, once it is known what to run.
func (a *agent) run(ctx context.Context) error {
	cleanup, err := a.prepare()
	if err != nil {
		return err
	}
	defer cleanup()
	// Before the first connection: one that began without the rules, and without Envoy's group,
	// would be taken for the workload's when they come.
	undo, err := a.intercept(ctx)
	if err != nil {
		return err
	}
	defer undo()
	stop, err := a.startBeside(ctx)
	if err != nil {
		return err
	}
	defer stop()
	defer a.deregistration.repeat.stop()
	a.log.Info("sidecar starting", "node", a.node.id, "cluster", a.node.cluster, "envoy", a.binary,
		"xds", a.XDS.Address, "concurrency", a.concurrency, "because", a.because, "admin", a.adminAddr, "bind", a.bind)
	err = a.supervise(ctx)
	undo() // nobody takes connections any more
	return err
}

// startBeside starts what works beside Envoy, and is there before it: the workload's certificate first, as
// others need it to reach the control plane. stop ends all, the last one first; so does an error.
func (a *agent) startBeside(ctx context.Context) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, end := range slices.Backward(stops) {
			end()
		}
	}
	for _, start := range []func(context.Context) (func(), error){
		a.startIdentity, a.serveEnvoy, a.amend, a.startNames, a.serveStatus,
	} {
		end, err := start(ctx)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, end)
	}
	return stop, nil
}

// prepare makes the work folder, and writes the bootstrap into it.
func (a *agent) prepare() (cleanup func(), err error) {
	cleanup, err = a.makeWorkDir()
	if err != nil {
		return nil, err
	}
	a.offerModules()
	a.tellPrivilege()
	if err := a.writeBootstrap(); err != nil {
		cleanup()
		return nil, err
	}
	return cleanup, nil
}

func (a *agent) makeWorkDir() (cleanup func(), err error) {
	if a.workDir = a.WorkDir; a.workDir != "" {
		if err := os.MkdirAll(a.workDir, 0o700); err != nil {
			return nil, fmt.Errorf("no place for Envoy's bootstrap: %w: correct --work-dir", err)
		}
		return func() {}, nil
	}
	if a.workDir, err = os.MkdirTemp("", "moonsail-agent-"); err != nil {
		return nil, fmt.Errorf("no place for Envoy's bootstrap: %w: set --work-dir", err)
	}
	return func() { _ = os.RemoveAll(a.workDir) }, nil
}

// writeBootstrap writes the bootstrap where only we can read it: metadata may hold what
// users would not show.
func (a *agent) writeBootstrap() error {
	content, err := a.bootstrapJSON()
	if err != nil {
		return err
	}
	a.bootstrap = filepath.Join(a.workDir, "envoy-bootstrap.json")
	if err := os.WriteFile(a.bootstrap, content, 0o600); err != nil {
		return fmt.Errorf("cannot write Envoy's bootstrap: %w: correct --work-dir", err)
	}
	return nil
}
