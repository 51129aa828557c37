package agent

import (
	"context"
	"sync"
	"time"
)

const (
	// holdStart is how long a container's preStop hook waits for the drain to start. The kubelet runs the hooks of all
	// containers of a Pod that ends at once, but starting the sidecar's, a command, takes a busy node seconds. When only
	// the container restarts, no drain starts.
	holdStart = 5 * time.Second
	// holdMargin is how long an application is held after the last ACK. A worker of a client's Envoy applies an update
	// some milliseconds after the ACK, and its last calls arrive then.
	holdMargin = 100 * time.Millisecond
)

// hold returns when the application may end: every proxy has ACKed the removal of its endpoints, or the deregistration
// has failed, or no drain has started, or ctx ends. It starts no drain, because any host of the network may call it.
func (a *agent) hold(ctx context.Context) {
	if !wait(ctx, a.draining.done, holdStart) {
		return
	}
	select {
	case <-a.deregistration.Done():
	case <-ctx.Done():
		return
	}
	wait(ctx, nil, holdMargin)
}

// released reports whether the agent has let the application end.
func (a *agent) released() bool {
	select {
	case <-a.deregistration.Done():
		return a.draining.isSet()
	default:
		return false
	}
}

// wait waits for c, for at most limit, and reports whether c is closed.
func wait(ctx context.Context, c <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// condition becomes true once.
type condition struct {
	once *sync.Once // closes done
	done chan struct{}
}

func newCondition() condition { return condition{&sync.Once{}, make(chan struct{})} }

func (c condition) set() { c.once.Do(func() { close(c.done) }) }

func (c condition) isSet() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// beginHook notes that a preStop hook begins. end notes its end.
func (a *agent) beginHook() (end func()) {
	a.log.Debug("preStop hook begins")
	return a.hooks.begin()
}

// hooks are the preStop hooks of the Pod's containers that are in progress. A classic sidecar, which gets SIGTERM when they begin,
// ends after them.
type hooks struct {
	mu      sync.Mutex
	running int       // guarded by mu
	until   time.Time // guarded by mu; hooks that begin later are not waited for; zero: no drain has started
}

// drain notes the first start of a drain. The kubelet runs the hooks of all containers then. Any host can call later ones, which must not
// delay the end.
func (h *hooks) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until.IsZero() {
		h.until = time.Now().Add(holdStart)
	}
}

func (h *hooks) begin() (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.until.IsZero() && time.Now().After(h.until) {
		return func() {}
	}
	h.running++
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.running--
	}
}

func (h *hooks) inProgress() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.running > 0
}
