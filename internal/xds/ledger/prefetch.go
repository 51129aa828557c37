package ledger

import (
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// endpointPrefetch are new clusters whose endpoints go right behind them, before the proxy asks: Envoy
// looks for them from the moment that it takes the cluster, and asks while it does. That
// saves a round trip, and the duplicate that the request would bring.
//
// Until the request comes it is not known whether the endpoints were of use. Its coming
// before their ACK, and not in one message with it, tells that they were: they were taken
// after the proxy had begun to look. In any other order they count as never sent, and are
// sent when they are asked for.
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

// sendAhead has the endpoints of clusters sent with them. known are those that may have been sent before.
func (l *Ledger) prefetchEndpoints(clusters, known []string) {
	if len(clusters) == 0 {
		return
	}
	e, set := &l.watches[eds], l.pool.Of(clusters...)
	l.prefetch.names, l.prefetch.missed = l.pool.Union(l.prefetch.names, set), l.pool.With(l.prefetch.missed, names.Strings(known))
	e.names = l.pool.With(e.names, names.Strings(clusters))
	e.todo = l.pool.Union(e.todo, set)
	e.owe(l.newest())
}

// sentBefore tells whether a cluster of f may have been sent before it: one of table i.
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

// goesAhead tells whether the endpoints of a cluster that is being sent are to go with it.
func (l *Ledger) isPrefetched(c *table.Entry) bool {
	e := &l.watches[eds]
	return l.protocol == Delta && e.on && !e.wild && !e.names.Has(c.Name) && l.watches[cds].held[c.Name] == nil &&
		l.lookup(resource.Endpoints, c.Name) != nil
}

// asked takes a subscription of endpoints. It gives those names that must be sent.
func (l *Ledger) asked(list [][]byte) [][]byte {
	a := &l.prefetch
	if a.names == nil && a.missed == nil {
		return list
	}
	var send [][]byte
	for _, n := range list {
		switch {
		case !a.names.HasBytes(n):
			send = append(send, n)
		case !l.watches[eds].todo.HasBytes(n) && !a.missed.HasBytes(n):
			a.trusted = true
		}
	}
	l.settlePrefetch(list)
	return send
}

// settleAhead forgets names of which it is known what the proxy wants.
func (l *Ledger) settlePrefetch(list [][]byte) {
	set := names.Slices(list)
	l.prefetch.names, l.prefetch.missed = l.pool.Without(l.prefetch.names, set), l.pool.Without(l.prefetch.missed, set)
}

// unasked takes back what went ahead and was not asked for before answer came: the ACK of
// the clusters, or that of the endpoints, which does not tell of those still in todo.
func (l *Ledger) unasked(answer kind) {
	e, a := &l.watches[eds], &l.prefetch
	lost := a.names
	if answer == eds {
		lost = l.pool.Minus(lost, e.todo)
	}
	if lost == nil || answer != cds && answer != eds {
		return
	}
	e.names, e.todo = l.pool.Minus(e.names, lost), l.pool.Minus(e.todo, lost)
	*a = endpointPrefetch{names: l.pool.Minus(a.names, lost), missed: l.pool.Union(a.missed, lost)}
}
