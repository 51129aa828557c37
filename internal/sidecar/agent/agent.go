package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"github.com/moonsail/moonsail/internal/sidecar/agent/deregister"
	"github.com/moonsail/moonsail/internal/sidecar/agent/identity"
	"github.com/moonsail/moonsail/internal/sidecar/agent/nameserver"
	"github.com/moonsail/moonsail/internal/sidecar/agent/scrape"
	"github.com/moonsail/moonsail/internal/sidecar/agent/workers"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// ErrForced means that the sidecar ended without a complete drain: it was aborted, or Envoy crashed or had to be killed.
// Connections may have been cut.
var ErrForced = errors.New("the sidecar was ended by force")

// Run runs a sidecar until ctx ends, then drains it and returns nil. It returns ErrForced if connections may have been
// cut, or another error if the sidecar could not start. All processes and goroutines have ended when it returns.
//
// The life of a sidecar: settings are resolved; the bootstrap is written; rules of interception are set; the services
// beside Envoy start; Envoy runs, and starts again after a crash (supervise); when ctx ends, the workload is
// deregistered, Envoy drains and ends (drain); everything stops in reverse order.
//
// Goroutines: this one supervises. Each Envoy process has three: one waits for its end, one reads its output, one waits
// until it is ready. The others belong to the services; docs/design/goroutines-queues-ports.md lists them.
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
	a := newAgent(s, found.Path)
	defer a.admin.Close()
	return a.run(ctx)
}

// agent is one running sidecar.
type agent struct {
	// read-only after startServices has set them
	*settings
	admin        *envoy.Admin
	bootstrap    *bootstrapFile
	controlPlane *controlPlane
	identity     *identity.Renewer // nil: the workload has no identity
	names        *nameserver.Table // nil: DNS questions are not captured

	metrics        *metrics
	scrapes        *scrape.Merger
	workers        *workers.Watch
	deregistration *deregister.Client

	quit     condition // POST /quitquitquit was called
	draining condition
	hooks    hooks
	wasReady atomic.Bool // it was ready once, so that it may receive calls
}

func newAgent(s *settings, binary string) *agent {
	a := &agent{
		settings:     s,
		admin:        envoy.NewAdmin(s.adminAddr),
		bootstrap:    &bootstrapFile{settings: s, binary: binary},
		controlPlane: &controlPlane{settings: s},
		metrics:      newMetrics(),
		draining:     newCondition(),
		quit:         newCondition(),
	}
	a.scrapes = scrape.New(scrape.Options{
		Registry: a.metrics.registry, Admin: a.admin, Workload: s.metricsWorkload(), Apps: s.AppMetrics, Bind: s.bind,
		OwnPorts: []uint16{s.ports.Status, s.ports.Prometheus}, Log: s.log,
	})
	a.workers = &workers.Watch{Admin: a.admin, Concurrency: s.concurrency, Because: s.because, Except: listenersWithoutTraffic}
	a.deregistration = deregister.New(deregister.Options{
		Dial: a.controlPlane.dial, ControlPlane: s.XDS.Address, Node: s.node.ID, Instance: s.instance, Addresses: s.Workload.IPs,
		WasReady: a.wasReady.Load, Timeout: s.leaveTimeout, Interval: s.Reannounce, DrainTime: s.drainTime, Log: s.log,
	})
	return a
}

// run is Run after the settings are known.
func (a *agent) run(ctx context.Context) error {
	cleanup, err := a.prepare()
	if err != nil {
		return err
	}
	defer cleanup()
	// Before the first connection of the agent: a connection that began without the rules and Envoy's group would
	// count as the workload's once the rules are set.
	undo, err := a.intercept(ctx)
	if err != nil {
		return err
	}
	defer undo()
	stop, err := a.startServices(ctx)
	if err != nil {
		return err
	}
	defer stop()
	defer a.deregistration.Close()
	a.log.Info(a.noun()+" starting", "node", a.node.ID, "cluster", a.node.Cluster, "envoy", a.bootstrap.binary,
		"xds", a.XDS.Address, "concurrency", a.concurrency, "because", a.because, "admin", a.adminAddr, "bind", a.bind)
	err = a.supervise(ctx)
	undo() // Envoy has ended and accepts no connections
	return err
}

// startServices starts the services beside Envoy, in order: the others need the workload's certificate to reach the
// control plane. stop ends them in reverse order. After an error all have ended.
func (a *agent) startServices(ctx context.Context) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, end := range slices.Backward(stops) {
			end()
		}
	}
	for _, start := range []func(context.Context) (func(), error){
		a.startIdentity, a.serveEnvoy, a.patchBootstrap, a.startNames, a.serveStatus,
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

// prepare creates the work folder and writes the bootstrap into it.
func (a *agent) prepare() (cleanup func(), err error) {
	cleanup, err = a.makeWorkDir()
	if err != nil {
		return nil, err
	}
	a.enableSDS()
	a.reportPrivileges()
	if err := a.bootstrap.write(); err != nil {
		cleanup()
		return nil, err
	}
	return cleanup, nil
}

func (a *agent) makeWorkDir() (cleanup func(), err error) {
	if a.workDir = a.WorkDir; a.workDir != "" {
		if err := os.MkdirAll(a.workDir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot create the folder for Envoy's bootstrap: %w: correct --work-dir", err)
		}
		return func() {}, nil
	}
	if a.workDir, err = os.MkdirTemp("", "moonsail-agent-"); err != nil {
		return nil, fmt.Errorf("cannot create the folder for Envoy's bootstrap: %w: set --work-dir", err)
	}
	return func() { _ = os.RemoveAll(a.workDir) }, nil
}
