package agent

import (
	"context"
	"sync"
	"time"
)

// retellEvery is how often a workload that has left says so again until it ends: a control
// plane that has started since, or another replica to which the connection goes now, knows
// nothing of it, and would have calls go there.
const retellEvery = 5 * time.Second

// repeating is a goroutine that is started once at most, and ended.
type repeating struct {
	mu     sync.Mutex // guards the fields below
	cancel context.CancelFunc
	over   bool // it is not started any more
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

// stop ends it and waits for it.
func (r *repeating) stop() {
	r.mu.Lock()
	r.over = true
	if r.cancel != nil {
		r.cancel()
	}
	r.mu.Unlock()
	r.ended.Wait()
}

// tellAgain says until ctx ends that the workload leaves. Nobody waits for it.
func (a *agent) tellAgain(ctx context.Context) {
	tick := time.NewTicker(a.retell())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		bounded, cancel := context.WithTimeout(ctx, a.leaveBound)
		if _, err := a.callLeave(bounded); err != nil && ctx.Err() == nil {
			a.log.Debug("nobody was told again that this leaves", "error", err)
		}
		cancel()
	}
}

func (s *settings) retell() time.Duration {
	if s.Retell > 0 {
		return s.Retell
	}
	return retellEvery
}
