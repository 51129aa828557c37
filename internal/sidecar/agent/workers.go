package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/sidecar/agent/workers"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// workerWatch looks at the workers of whatever Envoy runs.
type workerWatch struct {
	pid atomic.Int64 // of the running Envoy; 0: none. Who starts Envoys waits for nobody who asks

	mu   sync.Mutex // guards what follows; one asks at a time, for more than a second
	last workers.Look
	now  workers.Report
}

// runs notes which Envoy there is.
func (w *workerWatch) runs(pid int) { w.pid.Store(int64(pid)) }

const (
	// freshFor is how long a look is good for who asks: over less, times are too coarse.
	freshFor = time.Second
	// staleAfter is when a look is too old to compare with: it would tell of minutes ago.
	staleAfter = time.Minute
)

// workers is a report of now, over a second or the time since somebody last asked. Nobody
// looks where nobody asks.
func (a *agent) workers(ctx context.Context) (workers.Report, error) {
	w := &a.workerWatch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last.PID != int(w.pid.Load()) || time.Since(w.last.At) > staleAfter {
		look, err := w.look(ctx, a.admin)
		if err != nil {
			return workers.Report{}, err
		}
		if w.last = look; pauseFor(ctx, freshFor) != nil {
			return workers.Report{}, ctx.Err()
		}
	} else if !w.now.At.IsZero() && time.Since(w.now.At) < freshFor {
		return w.now, nil
	}
	look, err := w.look(ctx, a.admin)
	if err != nil {
		return workers.Report{}, err
	}
	w.now = workers.Compare(w.last, look, a.concurrency, a.because)
	w.now.Process = workers.Identify("/proc", look.PID)
	w.last = look
	return w.now, nil
}

// look is one look at Envoy. The lock is held.
func (w *workerWatch) look(ctx context.Context, admin *envoy.Admin) (workers.Look, error) {
	pid := int(w.pid.Load())
	if pid == 0 {
		return workers.Look{}, errors.New("no Envoy runs")
	}
	stats, err := admin.Stats(ctx, workers.ConnectionsFilter)
	if err != nil {
		return workers.Look{}, err
	}
	look := workers.Look{At: time.Now(), PID: pid, Connections: workers.Connections(stats, "admin", prometheusStatPrefix)}
	look.CPU, _ = workers.Threads("/proc", pid) // elsewhere than on Linux it is not known
	return look, nil
}

// handleWorkers tells of the worker threads.
func (a *agent) handleWorkers(w http.ResponseWriter, r *http.Request) {
	report, err := a.workers(r.Context())
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error(), "look at the agent's log")
		return
	}
	writeJSON(w, report)
}

// guarded lets those read a page who may read the debug pages.
func (a *agent) guarded(page http.HandlerFunc) http.Handler {
	return a.debugAccess().Guard(page, refuse, a.log)
}

func refuse(w http.ResponseWriter, code int, what, next string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": what, "next": next}) // the asker may have gone
}
