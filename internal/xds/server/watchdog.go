package server

import (
	"time"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// endpointsTimeout is how long listeners wait for a proxy that does not request the endpoints of its
// clusters. It is shorter than Envoy's own wait.
const (
	endpointsTimeout = 10 * time.Second
	watchEvery       = 2 * time.Second // between two checks of a stream
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
			s.check(now)
		}
	}
}

// check checks all streams but those that are busy, which the next tick checks. A large request on one stream must not delay
// the checks of the others.
func (s *Server) check(now time.Time) {
	for _, st := range s.streams.all() {
		if st.mu.TryLock() {
			st.check(now)
			st.mu.Unlock()
		}
	}
}

// check ends a wait that takes too long, and retries refused listeners. The stream's lock is held.
func (st *stream) check(now time.Time) {
	st.retryRefused(now)
	switch {
	case st.closed || !st.moved:
	case !st.ledger.Waiting():
		st.wait, st.moved = time.Time{}, false
	case st.ledger.InFlight(resource.Cluster): // a proxy that has not answered does not know its clusters yet
		st.wait = time.Time{}
	case st.wait.IsZero():
		st.wait = now
	case now.Sub(st.wait) < endpointsTimeout:
	case st.ledger.InFlight(resource.Endpoints): // those that the proxy requested meanwhile are sent once it answers
	default:
		if len(st.ledger.Missing(1)) > 0 {
			st.server.log.Warn("proxy does not request endpoints of its clusters: its listeners and routes are sent without them", "proxy", st.proxy.ID)
		}
		st.wait = time.Time{}
		st.ledger.StopWaiting()
		st.step()
	}
}
