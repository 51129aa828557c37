package agent

import (
	"context"
	"sync"
	"time"
)

// reannounceInterval is how often a drained workload repeats its deregistration until it ends. A
// control plane that has started since, or another replica, would send it calls otherwise.
const reannounceInterval = 5 * time.Second

// repeating runs a goroutine once at most, and ends it.
type repeating struct {
	mu     sync.Mutex // guards the fields below
	cancel context.CancelFunc
	over   bool // start does nothing
	ended  sync.WaitGroup
}

func (r *repeating) start(f func(context.Context)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.cancel != nil {
		return
	}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	r.ended.Go(func() { f(ctx) })
}

// stop ends the goroutine and waits for it.
func (r *repeating) stop() {
	r.mu.Lock()
	r.over = true
	if r.cancel != nil {
		r.cancel()
	}
	r.mu.Unlock()
	r.ended.Wait()
}

// reannounce repeats the deregistration until ctx ends.
func (a *agent) reannounce(ctx context.Context) {
	tick := time.NewTicker(a.reannounceEvery())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		bounded, cancel := context.WithTimeout(ctx, a.leaveBound)
		if _, err := a.callDeregister(bounded); err != nil && ctx.Err() == nil {
			a.log.Debug("deregistration could not be repeated", "error", err)
		}
		cancel()
	}
}

func (s *settings) reannounceEvery() time.Duration {
	if s.Reannounce > 0 {
		return s.Reannounce
	}
	return reannounceInterval
}
