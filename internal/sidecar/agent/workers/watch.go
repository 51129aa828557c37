package workers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// Watch reports on the workers of the Envoy that an agent runs. It samples only when a report is requested.
type Watch struct {
	Admin       *envoy.Admin
	Concurrency int
	Because     string   // why Envoy has so many workers
	Except      []string // listeners that serve no traffic, by their names in statistics

	pid atomic.Int64 // of the running Envoy; 0: none. Atomic, so that a report does not delay the start of an Envoy

	mu       sync.Mutex // guards the fields below; held for a whole report, which takes more than a second
	previous Sample
	report   Report
}

// Runs sets the process id of the Envoy that runs; 0: none.
func (w *Watch) Runs(pid int) { w.pid.Store(int64(pid)) }

const (
	// interval is the least time between two samples: CPU times are too coarse for less.
	interval = time.Second
	// staleAfter is the age at which a sample is too old to compare with.
	staleAfter = time.Minute
)

// Report returns a report over the time since the last one, or over one second if that was long ago.
func (w *Watch) Report(ctx context.Context) (Report, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.previous.PID != int(w.pid.Load()) || time.Since(w.previous.At) > staleAfter {
		sample, err := w.sample(ctx)
		if err != nil {
			return Report{}, err
		}
		if w.previous = sample; clock.Sleep(ctx, interval) != nil {
			return Report{}, ctx.Err()
		}
	} else if !w.report.At.IsZero() && time.Since(w.report.At) < interval {
		return w.report, nil
	}
	sample, err := w.sample(ctx)
	if err != nil {
		return Report{}, err
	}
	w.report = Compare(w.previous, sample, w.Concurrency, w.Because)
	w.report.Process = Identify("/proc", sample.PID)
	w.previous = sample
	return w.report, nil
}

// sample takes one sample of Envoy. mu is held.
func (w *Watch) sample(ctx context.Context) (Sample, error) {
	pid := int(w.pid.Load())
	if pid == 0 {
		return Sample{}, errors.New("no Envoy runs")
	}
	stats, err := w.Admin.Stats(ctx, ConnectionsFilter)
	if err != nil {
		return Sample{}, err
	}
	s := Sample{At: time.Now(), PID: pid, Connections: Connections(stats, w.Except...)}
	s.CPU, _ = Threads("/proc", pid) // unknown on other systems than Linux
	return s, nil
}
