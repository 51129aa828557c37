package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// watch looks at a fresh Envoy until it is ready, says so once, and meanwhile says now
// and then what it waits for.
type watch struct {
	cancel context.CancelFunc
	done   chan struct{}
	spoke  atomic.Bool // its admin interface has answered
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

// stop ends the watch and returns when it has ended.
func (w *watch) stop() {
	w.cancel()
	<-w.done
}

// answered tells whether Envoy's admin interface ever answered.
func (w *watch) answered() bool { return w.spoke.Load() }

func (a *agent) watchUntilReady(ctx context.Context, p *envoy.Process, w *watch) {
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	start := time.Now()
	for remind := readyRemind; ; {
		answered, err := a.checkReady(ctx)
		if answered {
			w.spoke.Store(true)
		}
		if err == nil {
			a.metrics.setReady(true)
			a.everSeen.Store(true)
			a.metrics.startedUp(time.Since(start))
			a.log.Info("sidecar ready", "after", time.Since(start).Round(time.Millisecond), "pid", p.Pid())
			return
		}
		if waited := time.Since(start); waited >= remind && ctx.Err() == nil {
			a.log.Warn("sidecar not ready", "for", waited.Round(time.Second), "reason", err)
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
