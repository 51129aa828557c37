package agent

import (
	"context"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

const (
	drainPoll = 100 * time.Millisecond
	// stopGrace is what Envoy gets between SIGTERM and SIGKILL: it has nothing left to do
	// but to write out its access logs. Where there is no CPU to spare that takes some
	// seconds; with 10 s until all know that it leaves and 5 s of drain time it is less than
	// the 30 s that a kubelet waits.
	stopGrace = 10 * time.Second
	// adminPatience bounds each question to Envoy during a drain.
	adminPatience = 2 * time.Second
	// maxSilence is how many questions in a row an Envoy that serves would not leave
	// unanswered: it has not started yet, or hangs.
	maxSilence = 3
	// minQuiet is how many answers in a row must know of no connection: between an Envoy's ACK
	// and its last worker's taking it up lie milliseconds, in which that may open one.
	minQuiet = 2
)

// drain lets connections end, then ends Envoy: readiness fails at once, and the control
// plane takes the calls away. When every proxy has ACKed that, HTTP clients are told to go
// (connection: close, GOAWAY); new connections are still taken, since a worker of an Envoy
// takes up what the Envoy has ACKed a little later. It is over when no connection is left
// and none came meanwhile, or after the drain time.
func (a *agent) drain(p *envoy.Process) error {
	a.draining.Store(true)
	a.metrics.setReady(false)
	known, outcome := a.awaitDeregistered(p)
	if outcome == drainDone {
		least := a.MinDrain
		if !known || a.isRouter() { // whoever calls a gateway from outside is told by nobody
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
	// Inbound only: until it ends, the application may go on calling others. A router has none.
	if err := a.admin.DrainListeners(ctx, !a.isRouter()); err != nil {
		a.log.Warn("Envoy was not told to drain its listeners", "error", err)
	}
}

type drainOutcome int

const (
	drainDone drainOutcome = iota
	drainTimeout
	drainAborted
	drainCrashed
	drainQuit // asked to quit, without a drain
)

// awaitDrained waits until there is no connection, and still none with the next look.
func (a *agent) awaitDrained(p *envoy.Process, least time.Duration) drainOutcome {
	start := time.Now()
	end := time.NewTimer(max(least, a.drainTime))
	defer end.Stop()
	poll := time.NewTicker(drainPoll)
	defer poll.Stop()
	for silent, quiet := 0, 0; ; {
		n := a.connections()
		if silent++; n >= 0 {
			silent = 0
		}
		if quiet++; n != 0 {
			quiet = 0
		}
		if time.Since(start) >= least && (quiet >= minQuiet || silent >= maxSilence) {
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
			if a.connections() == 0 {
				return drainDone
			}
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
