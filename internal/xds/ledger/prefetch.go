package ledger

import (
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// endpointPrefetch is the set of new clusters whose endpoints follow them before the proxy requests
// the endpoints. This saves a round trip, and the duplicate that the request would cause.
//
// Until the request comes it is unknown whether Envoy used the endpoints. If the request comes before
// their ACK, and not in one message with it, Envoy took them after it began to wait for them.
// Otherwise they count as not sent, and are sent when they are requested.
type endpointPrefetch struct {
	// names count as subscribed, and are in EDS's todo or flight.
	names *names.Set
	// missed went ahead and were not asked for in time, or are of clusters that may have been
	// sent before: the request that comes for them may be due to that, and tells nothing of
	// what went ahead since.
	missed *names.Set
	// trusted: the last ones were of use. Then listeners and routes do not wait for the
	// clusters' ACK, either. A cluster that is refused has a route then before that is known,
	// and would have it after.
	trusted bool
}

// prefetchEndpoints schedules the endpoints of clusters that are being sent. known are those that
// may have been sent before.
func (l *Ledger) prefetchEndpoints(clusters, known []string) {
	if len(clusters) == 0 {
		return
	}
	e, set := &l.watches[eds], l.pool.Of(clusters...)
	l.prefetch.names, l.prefetch.missed = l.pool.Union(l.prefetch.names, set), l.pool.With(l.prefetch.missed, names.Strings(known))
	e.names = l.pool.With(e.names, names.Strings(clusters))
	e.toSend = l.pool.Union(e.toSend, set)
	e.notePending(l.newest())
}

// sentBefore reports whether a cluster of f, from table i, may have been sent before.
func (l *Ledger) sentBefore(c *table.Entry, i int, f *flight) bool {
	if f.explicit || c.Added <= f.from[i].add {
		return true
	}
	for j, s := range l.states {
		if j == i {
			continue
		}
		if other := s.Get(resource.Cluster, c.Name); other != nil && other.Added <= f.from[j].add {
			return true
		}
	}
	return false
}

// isPrefetched reports whether the endpoints of a cluster that is being sent follow it at once.
func (l *Ledger) isPrefetched(c *table.Entry) bool {
	e := &l.watches[eds]
	return l.protocol == Delta && e.on && !e.wildcard && !e.names.Has(c.Name) && l.watches[cds].held[c.Name] == nil &&
		l.lookup(resource.Endpoints, c.Name) != nil
}

// subscribeEndpoints processes a subscription to endpoints. It returns the names that must be sent.
func (l *Ledger) subscribeEndpoints(list [][]byte) [][]byte {
	a := &l.prefetch
	if a.names == nil && a.missed == nil {
		return list
	}
	var send [][]byte
	for _, n := range list {
		switch {
		case !a.names.HasBytes(n):
			send = append(send, n)
		case !l.watches[eds].toSend.HasBytes(n) && !a.missed.HasBytes(n):
			a.trusted = true
		}
	}
	l.settlePrefetch(list)
	return send
}

// settlePrefetch forgets names that the proxy subscribed to or unsubscribed from.
func (l *Ledger) settlePrefetch(list [][]byte) {
	set := names.Slices(list)
	l.prefetch.names, l.prefetch.missed = l.pool.Without(l.prefetch.names, set), l.pool.Without(l.prefetch.missed, set)
}

// dropUnrequested takes back the prefetched endpoints that were not requested before an answer
// came: the ACK of the clusters, or of the endpoints, which does not cover those still in toSend.
func (l *Ledger) dropUnrequested(answer kind) {
	e, a := &l.watches[eds], &l.prefetch
	lost := a.names
	if answer == eds {
		lost = l.pool.Minus(lost, e.toSend)
	}
	if lost == nil || answer != cds && answer != eds {
		return
	}
	e.names, e.toSend = l.pool.Minus(e.names, lost), l.pool.Minus(e.toSend, lost)
	*a = endpointPrefetch{names: l.pool.Minus(a.names, lost), missed: l.pool.Union(a.missed, lost)}
}
