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
	*streamState

	// names count as subscribed, and are in EDS's toSend or flight.
	names *names.Set
	// missed are clusters whose prefetched endpoints were not requested in time, or that may have
	// been sent before. A request for their endpoints may be due to that, so it does not show that
	// Envoy used prefetched endpoints.
	missed *names.Set
	// trusted: the proxy used the last prefetched endpoints. Listeners and routes then do not wait
	// for the clusters' ACK. If the proxy refuses such a cluster, a route already leads to it, as it
	// would after the NACK.
	trusted bool
}

// wants reports whether the endpoints of a cluster that is being sent follow it at once.
func (a *endpointPrefetch) wants(c *table.Entry) bool {
	e := &a.watches[eds]
	return a.protocol == Delta && e.on && !e.wildcard && !e.names.Has(c.Name) && a.watches[cds].held[c.Name] == nil &&
		a.lookup(resource.Endpoints, c.Name) != nil
}

// sentBefore reports whether a cluster of f, from table i, may have been sent before.
func (a *endpointPrefetch) sentBefore(c *table.Entry, i int, f *flight) bool {
	if f.explicit || c.Added <= f.from[i].add {
		return true
	}
	for j, s := range a.states {
		if j == i {
			continue
		}
		if other := s.Get(resource.Cluster, c.Name); other != nil && other.Added <= f.from[j].add {
			return true
		}
	}
	return false
}

// schedule schedules the endpoints of clusters that are being sent. known are those that may have
// been sent before.
func (a *endpointPrefetch) schedule(clusters, known []string) {
	if len(clusters) == 0 {
		return
	}
	e, set := &a.watches[eds], a.pool.Of(clusters...)
	a.names, a.missed = a.pool.Union(a.names, set), a.pool.With(a.missed, names.Strings(known))
	e.names = a.pool.With(e.names, names.Strings(clusters))
	e.toSend = a.pool.Union(e.toSend, set)
	e.notePending(a.newest())
}

// subscribe processes a subscription to endpoints. It returns the names that must be sent.
func (a *endpointPrefetch) subscribe(list [][]byte) [][]byte {
	if a.names == nil && a.missed == nil {
		return list
	}
	var send [][]byte
	for _, n := range list {
		switch {
		case !a.names.HasBytes(n):
			send = append(send, n)
		case !a.watches[eds].toSend.HasBytes(n) && !a.missed.HasBytes(n):
			a.trusted = true
		}
	}
	a.forget(list)
	return send
}

// forget forgets names that the proxy subscribed to or unsubscribed from.
func (a *endpointPrefetch) forget(list [][]byte) {
	set := names.Slices(list)
	a.names, a.missed = a.pool.Without(a.names, set), a.pool.Without(a.missed, set)
}

// dropUnrequested cancels the prefetched endpoints that were not requested before an answer came:
// the ACK of the clusters, which does not cover those of later responses, or of the endpoints, which does not cover those
// still in toSend.
func (a *endpointPrefetch) dropUnrequested(answer kind, f *flight) {
	if answer == cds {
		a.newClusters = nil
	}
	e := &a.watches[eds]
	lost := a.names
	switch {
	case lost == nil:
	case answer == eds:
		lost = a.pool.Minus(lost, e.toSend)
	case answer == cds && a.watches[cds].flight != nil:
		lost = a.pool.Minus(lost, a.pool.Without(lost, names.Strings(f.names())))
	}
	if lost == nil || answer != cds && answer != eds {
		return
	}
	e.names, e.toSend = a.pool.Minus(e.names, lost), a.pool.Minus(e.toSend, lost)
	a.names, a.missed, a.trusted = a.pool.Minus(a.names, lost), a.pool.Union(a.missed, lost), false
}
