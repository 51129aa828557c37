package agent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moonsail/moonsail/internal/sidecar/agent/bootstrap"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

const (
	drainPoll = 100 * time.Millisecond
	// stopGrace is the time between SIGTERM and SIGKILL, in which Envoy only writes its access logs. Without a spare CPU
	// that takes some seconds. With 10 s for the deregistration and 5 s of drain time it stays below a kubelet's 30 s.
	stopGrace = 10 * time.Second
	// adminTimeout bounds each request to Envoy during a drain.
	adminTimeout = 2 * time.Second
	// maxSilence is how many requests in a row a running Envoy may leave unanswered. After more it has not started yet,
	// or hangs.
	maxSilence = 3
	// minQuiet is how many answers in a row must report no connection. A worker applies an update some milliseconds after
	// Envoy's ACK, and may open a connection in between.
	minQuiet = 2
)

// drain waits for the end of connections, then ends Envoy. Readiness fails at once. When every proxy has ACKed the removal
// of the workload's endpoints, Envoy asks HTTP clients to close their connections (connection: close, GOAWAY). It still
// accepts new connections, because a worker of a client's Envoy applies an update after the ACK. The drain is over when
// no connection is left and none came meanwhile, unless it must take the whole drain time, or after the drain time.
func (a *agent) drain(p *envoy.Process) error {
	a.startDrain()
	acked, outcome := a.awaitDeregistered(p)
	if outcome == drainDone {
		least := a.MinDrain
		if !acked || a.FullDrain || a.isRouter() { // clients outside of the mesh cannot ACK
			least = max(least, a.drainTime)
		}
		a.log.Info("draining", "at least", least, "at most", max(least, a.drainTime))
		a.beginDrain()
		outcome = a.awaitDrained(p, least)
	}
	switch outcome {
	case drainAborted:
		return a.force(p)
	case drainCrashed:
		a.log.Error("Envoy ended during the drain", "ending", ending(p.Err()))
		return ErrForced
	case drainTimeout:
		a.log.Warn("drain time is over; the remaining connections are closed", "connections", a.connections())
	}
	return a.stop(p)
}

// startDrain marks the workload as draining. From then on it is not ready, unless StayReady.
func (a *agent) startDrain() {
	a.hooks.drain()
	a.draining.set()
	a.metrics.setReady(false)
}

// awaitDeregistered deregisters the workload. The outcome is drainDone unless something interrupted the wait.
func (a *agent) awaitDeregistered(p *envoy.Process) (acked bool, outcome drainOutcome) {
	a.deregistration.Start()
	for {
		select {
		case <-a.deregistration.Done():
			acked, _, _ := a.deregistration.Wait()
			return acked, drainDone
		case <-p.Done():
			return false, drainCrashed
		case <-a.Abort:
			return false, drainAborted
		case <-a.quit.done:
			return false, drainQuit
		case sig := <-a.Signals:
			a.forward(p, sig)
		}
	}
}

func (a *agent) beginDrain() {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	err := a.admin.FailHealthCheck(ctx)
	if errors.Is(err, syscall.ECONNREFUSED) && !a.wasReady.Load() {
		a.log.Info("Envoy does not listen yet: there is nothing to drain")
		return
	}
	if err != nil {
		a.log.Warn("cannot make Envoy fail its health checks", "error", err)
	}
	// Inbound only: the application may call other services until it ends, on new connections, because failed health checks end
	// those that it has with their next response. A router has no application.
	if err := a.admin.DrainListeners(ctx, !a.isRouter()); err != nil {
		a.log.Warn("cannot make Envoy drain its listeners", "error", err)
	}
}

type drainOutcome int

const (
	drainDone drainOutcome = iota
	drainTimeout
	drainAborted
	drainCrashed
	drainQuit // POST /quitquitquit ends the sidecar without a drain
)

// awaitDrained waits until two polls in a row find no connection, for at most the drain time. Both times begin anew while preStop hooks are
// in progress: the application ends after its hook, and uses Envoy until then. The Pod's grace period bounds the hooks.
func (a *agent) awaitDrained(p *envoy.Process, least time.Duration) drainOutcome {
	start, most := time.Now(), max(least, a.drainTime)
	end := time.NewTimer(most)
	defer end.Stop()
	poll := time.NewTicker(drainPoll)
	defer poll.Stop()
	logHooks := sync.OnceFunc(func() { a.log.Info("waiting for preStop hooks of the application") })
	for silent, quiet := 0, 0; ; {
		n := a.connections()
		if silent++; n >= 0 {
			silent = 0
		}
		if quiet++; n != 0 {
			quiet = 0
		}
		if a.hooks.inProgress() {
			logHooks()
			start, silent, quiet = time.Now(), 0, 0
			end.Reset(most + drainPoll) // after the next poll
		}
		if time.Since(start) >= least && (quiet >= minQuiet || silent >= maxSilence) {
			return drainDone
		}
		select {
		case <-p.Done():
			return drainCrashed
		case <-a.Abort:
			return drainAborted
		case <-a.quit.done:
			return drainDone
		case sig := <-a.Signals:
			a.forward(p, sig)
		case <-end.C:
			if a.connections() == 0 {
				return drainDone
			}
			return drainTimeout
		case <-poll.C:
		}
	}
}

// stop ends Envoy.
func (a *agent) stop(p *envoy.Process) error {
	start := time.Now()
	if p.Stop(stopGrace) {
		a.log.Warn("Envoy did not end after SIGTERM and was killed", "after", stopGrace)
		return ErrForced
	}
	a.log.Info(a.noun()+" ended", "took", time.Since(start).Round(time.Millisecond))
	return nil
}

// connections returns the number of Envoy's downstream connections without those of scrapers; -1 if Envoy does not answer.
func (a *agent) connections() int {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	stats, err := a.admin.Stats(ctx, `^listener\..*\.downstream_cx_active$`)
	if err != nil {
		return -1
	}
	return activeConnections(stats)
}

// listenersWithoutTraffic are the listeners of scrapers and administrators, by their names in statistics.
var listenersWithoutTraffic = []string{"admin", bootstrap.PrometheusStatPrefix}

// activeConnections sums "listener.ADDRESS.downstream_cx_active" over the listeners that serve traffic. It skips the
// statistics by worker, which count the same connections again.
func activeConnections(stats map[string]uint64) int {
	total := 0
	for name, n := range stats {
		name, ok := strings.CutSuffix(strings.TrimPrefix(name, "listener."), ".downstream_cx_active")
		if !ok || slices.Contains(listenersWithoutTraffic, name) || strings.HasPrefix(name, "admin.") ||
			strings.Contains(name, ".worker_") || strings.Contains(name, ".main_thread") || strings.HasPrefix(name, "envoy_internal_") {
			continue
		}
		total += int(n)
	}
	return total
}
