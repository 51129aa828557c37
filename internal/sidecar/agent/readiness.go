package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// Statistics of Envoy that determine readiness. The bootstrap includes all of them.
const (
	statState          = "server.state"
	statWorkersStarted = "listener_manager.workers_started"
	statCDSSuccess     = "cluster_manager.cds.update_success"
	statCDSRejected    = "cluster_manager.cds.update_rejected"
	statLDSSuccess     = "listener_manager.lds.update_success"
	statLDSRejected    = "listener_manager.lds.update_rejected"
	statXDSConnections = "cluster.xds-grpc;.upstream_cx_active" // ";" ends alt_stat_name

	readinessFilter = `^(server\.state|listener_manager\.workers_started|` +
		`(cluster_manager\.cds|listener_manager\.lds)\.update_(success|rejected)|cluster\.xds-grpc;\.upstream_cx_active)$`
)

// serverStates are the values of server.state.
var serverStates = []string{"LIVE", "DRAINING", "PRE_INITIALIZING", "INITIALIZING"}

// probeTimeout is less than the 3 s of Istio's injected probes.
const probeTimeout = 2500 * time.Millisecond

// ready returns nil if the sidecar is ready, else the reason that both status ports answer with.
func (a *agent) ready(ctx context.Context) error {
	if a.draining.isSet() {
		if a.StayReady {
			return nil
		}
		return errors.New("the " + a.noun() + " is draining")
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	_, err := a.checkReady(ctx)
	a.metrics.setReady(err == nil)
	return err
}

// checkReady returns nil if Envoy is live, its workers run, and it has accepted clusters and listeners; else what is
// missing. answered reports whether Envoy's admin interface answered.
func (a *agent) checkReady(ctx context.Context) (answered bool, err error) {
	stats, err := a.admin.Stats(ctx, readinessFilter)
	if err != nil {
		return false, err
	}
	err = readiness(stats, &a.XDS)
	if err == nil && a.names != nil && !a.names.Loaded() {
		err = errors.New("the control plane has not sent the names of the mesh yet")
	}
	if err != nil && a.identity != nil {
		if missing := a.identity.Problem(); missing != nil {
			return true, missing // Envoy waits for the certificate first
		}
	}
	return true, err
}

func readiness(stats map[string]uint64, xds *XDS) error {
	if stats[statCDSSuccess] == 0 || stats[statLDSSuccess] == 0 {
		return missingConfig(stats, xds)
	}
	state, ok := stats[statState]
	switch {
	case !ok:
		return errors.New("the state of Envoy is not known yet")
	case state != 0:
		return fmt.Errorf("the state of Envoy is not LIVE but %s", stateName(state))
	case stats[statWorkersStarted] == 0:
		return errors.New("the workers of Envoy have not started")
	}
	return nil
}

func missingConfig(stats map[string]uint64, xds *XDS) error {
	rejected := stats[statCDSRejected] + stats[statLDSRejected]
	counts := fmt.Sprintf("clusters: %d accepted, %d rejected; listeners: %d accepted, %d rejected",
		stats[statCDSSuccess], stats[statCDSRejected], stats[statLDSSuccess], stats[statLDSRejected])
	switch {
	case rejected > 0:
		return fmt.Errorf("configuration of the control plane: rejected by Envoy (%s): see Envoy's log", counts)
	case stats[statXDSConnections] == 0 && stats[statCDSSuccess] == 0:
		hint := "is it running there?"
		if xds.Plaintext {
			hint += " if the address speaks TLS, set --xds-plaintext=false"
		}
		return fmt.Errorf("no connection to the control plane at %s (%s)", xds.Address, hint)
	}
	return fmt.Errorf("the control plane at %s has not sent everything yet (%s)", xds.Address, counts)
}

func stateName(state uint64) string {
	if state < uint64(len(serverStates)) {
		return serverStates[state]
	}
	return fmt.Sprintf("in state %d", state)
}

const (
	readyPoll   = 50 * time.Millisecond
	readyRemind = 10 * time.Second // how often the log repeats why a sidecar is not ready
)

// watch waits until a new Envoy is ready. It logs that once, and meanwhile what is missing.
type watch struct {
	cancel   context.CancelFunc
	done     chan struct{}
	answered atomic.Bool // Envoy's admin interface has answered
}

func (a *agent) watch(ctx context.Context, p *envoy.Process) *watch {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		a.watchUntilReady(ctx, p, w)
	}()
	return w
}

// stop ends the watch and waits for its end.
func (w *watch) stop() {
	w.cancel()
	<-w.done
}

func (a *agent) watchUntilReady(ctx context.Context, p *envoy.Process, w *watch) {
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	start := time.Now()
	for remind := readyRemind; ; {
		answered, err := a.checkReady(ctx)
		if answered {
			w.answered.Store(true)
		}
		if err == nil {
			a.metrics.setReady(true)
			a.wasReady.Store(true)
			a.metrics.startup.Set(time.Since(start).Seconds())
			a.log.Info(a.noun()+" ready", "after", time.Since(start).Round(time.Millisecond), "pid", p.Pid())
			return
		}
		if waited := time.Since(start); waited >= remind && ctx.Err() == nil {
			a.log.Warn(a.noun()+" not ready", "for", waited.Round(time.Second), "reason", err)
			remind += readyRemind
		}
		select {
		case <-ctx.Done():
			return
		case <-p.Done():
			return
		case <-ticker.C:
		}
	}
}
