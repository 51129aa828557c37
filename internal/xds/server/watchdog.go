package server

import (
	"time"

	"github.com/moonsail/moonsail/internal/xds/resource"
)

// endpointsTimeout is how long listeners wait for a proxy that does not request the endpoints of its
// clusters. It is shorter than Envoy's own wait.
const (
	endpointsTimeout = 10 * time.Second
	watchEvery       = 2 * time.Second // between two checks of all streams
)

// answerTimeout is how long the server waits for the answer to clusters before it sends others. A running Envoy answers in much
// less time, unless it waits for something that a cluster needs, such as the addresses of a name.
const (
	answerTimeout = time.Second
	answersEvery  = 250 * time.Millisecond // between two checks while a proxy has not answered its clusters
)

// watch is the watchdog: it checks all streams until Close.
func (s *Server) watch() {
	tick := time.NewTicker(answersEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-s.stop:
			return
		case now := <-tick.C:
			if n%int(watchEvery/answersEvery) == 0 || s.clustersUnanswered.Load() > 0 {
				s.check(now)
			}
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
	st.passOverdue(now)
	switch {
	case st.closed || !st.moved:
	case !st.ledger.Waiting():
		st.wait, st.moved = time.Time{}, false
	case st.ledger.InFlight(resource.Cluster) && !st.ledger.Withholds(): // a proxy that has not answered may not know its clusters yet
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

// passOverdue sends what waits for the answer to clusters, if it is late and the proxy reads its stream. The stream's lock is held.
func (st *stream) passOverdue(now time.Time) {
	clusters := st.delivery.inFlight(resource.Cluster)
	if !st.closed && !clusters.since.IsZero() && now.Sub(clusters.last) >= answerTimeout && st.delivery.unread() == 0 && st.ledger.Overdue(resource.Cluster) {
		st.step()
	}
}
