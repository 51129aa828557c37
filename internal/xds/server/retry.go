package server

import (
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// maxTries is how often a temporary refusal is retried: after 2 s, 4, 8, ..., two minutes in all.
const maxTries = 6

// mayPass reports whether a listener may be accepted later without a change. Envoy 1.40 refuses a
// listener with a plugin while the last module that its agent served for the plugin is invalid. The
// agent may then serve another module, or the module is a file that may be corrected.
func mayPass(message string) bool { return strings.Contains(message, "Unable to create Wasm plugin") }

// retry is the schedule of a stream's retries.
type retry struct {
	tries int
	next  time.Time
}

// retryRefused sends refused listeners again when it is time. The stream's lock is held.
func (st *stream) retryRefused(now time.Time) {
	r := st.again
	due := r != nil && !now.Before(r.next)
	if st.closed || st.ledger == nil || !st.ledger.Retry(resource.Listener, due, maxTries, mayPass) {
		st.again = nil
		return
	}
	switch {
	case r == nil:
		st.again = &retry{next: now.Add(watchEvery)}
	case due:
		r.tries++
		r.next = now.Add(watchEvery << r.tries)
		st.step()
	}
}

// patience is how long listeners wait for a proxy that does not request the endpoints of its
// clusters. It is shorter than Envoy's own wait.
const (
	patience   = 10 * time.Second
	watchEvery = 2 * time.Second
)

// watch is the watchdog: it checks all streams until Close.
func (s *Server) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case now := <-tick.C:
			for _, st := range s.streams.all() {
				st.check(now)
			}
		}
	}
}

// check ends a wait that takes too long, and retries refused listeners.
func (st *stream) check(now time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.retryRefused(now)
	switch {
	case st.closed || !st.moved:
	case !st.ledger.Waiting():
		st.wait, st.moved = time.Time{}, false
	case st.wait.IsZero():
		st.wait = now
	case now.Sub(st.wait) >= patience:
		st.server.log.Warn("proxy does not request endpoints of its clusters: its listeners and routes are sent without them", "proxy", st.proxy.ID)
		st.wait = time.Time{}
		st.ledger.StopWaiting()
		st.step()
	}
}
