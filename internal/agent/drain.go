package agent

import (
	"context"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/envoy"
)

const (
	drainPoll = 100 * time.Millisecond
	// stopGrace is what Envoy gets between SIGTERM and SIGKILL: it has nothing left to do
	// but to write out its access logs.
	stopGrace = 5 * time.Second
	// adminPatience bounds each question to Envoy during a drain.
	adminPatience = 2 * time.Second
	// maxSilence is how many questions in a row an Envoy that serves would not leave
	// unanswered: it has not started yet, or hangs.
	maxSilence = 3
)

// drain lets connections end, then ends Envoy: readiness fails at once, HTTP clients are
// told to go (connection: close, GOAWAY), new connections are still taken, since the
// news that this workload leaves may not have reached everybody. It is over when no
// connection is left, or after the drain time.
func (a *agent) drain(p *envoy.Process) error {
	a.draining.Store(true)
	a.metrics.setReady(false)
	a.log.Info("draining", "at most", a.drainTime)
	a.beginDrain()

	outcome := a.awaitDrained(p)
	switch outcome {
	case drainAborted:
		return a.force(p)
	case drainCrashed:
		a.log.Error("Envoy ended during the drain", "ending", ending(p.Err()))
		return ErrForced
	case drainTimeout:
		a.log.Warn("drain time is over; the connections that are left are closed", "connections", a.connections())
	}
	return a.stop(p)
}

func (a *agent) beginDrain() {
	ctx, cancel := context.WithTimeout(context.Background(), adminPatience)
	defer cancel()
	if err := a.admin.FailHealthCheck(ctx); err != nil {
		a.log.Warn("Envoy was not told to refuse health checks", "error", err)
	}
	// Inbound only: until it ends, the application may go on calling others.
	if err := a.admin.DrainListeners(ctx, true); err != nil {
		a.log.Warn("Envoy was not told to drain its listeners", "error", err)
	}
}

type drainOutcome int

const (
	drainDone drainOutcome = iota
	drainTimeout
	drainAborted
	drainCrashed
)

func (a *agent) awaitDrained(p *envoy.Process) drainOutcome {
	start := time.Now()
	end := time.NewTimer(a.drainTime)
	defer end.Stop()
	poll := time.NewTicker(drainPoll)
	defer poll.Stop()
	for silent := 0; ; {
		n := a.connections()
		if silent++; n >= 0 {
			silent = 0
		}
		if time.Since(start) >= a.MinDrain && (n == 0 || silent >= maxSilence) {
			return drainDone
		}
		select {
		case <-p.Done():
			return drainCrashed
		case <-a.Abort:
			return drainAborted
		case <-a.quit:
			return drainDone
		case sig := <-a.Signals:
			a.forward(p, sig)
		case <-end.C:
			return drainTimeout
		case <-poll.C:
		}
	}
}

// stop ends an Envoy that has nothing left to do.
func (a *agent) stop(p *envoy.Process) error {
	start := time.Now()
	if p.Stop(stopGrace) {
		a.log.Warn("Envoy did not end when asked and was killed", "after", stopGrace)
		return ErrForced
	}
	a.log.Info("sidecar ended", "took", time.Since(start).Round(time.Millisecond))
	return nil
}

// connections counts Envoy's downstream connections but those of scrapers: -1 if Envoy
// does not say.
func (a *agent) connections() int {
	ctx, cancel := context.WithTimeout(context.Background(), adminPatience)
	defer cancel()
	stats, err := a.admin.Stats(ctx, `^listener\..*\.downstream_cx_active$`)
	if err != nil {
		return -1
	}
	return activeConnections(stats)
}

// activeConnections adds up listeners: "listener.ADDRESS.downstream_cx_active". The same
// connections once more by worker, and the two listeners that serve no traffic, are left
// out.
func activeConnections(stats map[string]uint64) int {
	total := 0
	for name, n := range stats {
		name, ok := strings.CutSuffix(strings.TrimPrefix(name, "listener."), ".downstream_cx_active")
		if !ok || name == "admin" || name == prometheusStatPrefix || strings.HasPrefix(name, "admin.") ||
			strings.Contains(name, ".worker_") || strings.Contains(name, ".main_thread") || strings.HasPrefix(name, "envoy_internal_") {
			continue
		}
		total += int(n)
	}
	return total
}
