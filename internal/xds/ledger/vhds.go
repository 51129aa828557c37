package ledger

import (
	"bytes"

	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Envoy keeps virtual hosts in their route configuration, drops them with it, and ignores those
// that come before it. A route configuration is in one of three states: in no set, from its
// subscription to its ACK; in toLoad, until all of its virtual hosts are sent; in synced, where
// only changes are sent.

// routesAccepted records the route configurations that the proxy has from now on.
func (l *Ledger) routesAccepted(f *flight) {
	if !l.strategy.VirtualHosts {
		return
	}
	for e := range f.entries() {
		later := !l.watches[vhds].on && l.claimedRoutes.Has(e.Name) // it will tell what it has
		if l.watches[rds].names.Has(e.Name) && !l.synced.Has(e.Name) && !later {
			l.toLoad = l.pool.With(l.toLoad, names.Strings([]string{e.Name}))
		}
	}
	l.noteHostsPending()
}

// noteHostsPending records that virtual hosts are to be sent.
func (l *Ledger) noteHostsPending() {
	if l.toLoad != nil {
		l.watches[vhds].notePending(l.newest())
	}
}

// dropRoutes records that the proxy dropped route configurations, or subscribed to them again.
// Virtual hosts in flight may reach the new ones.
func (l *Ledger) dropRoutes(set names.List) {
	if v := &l.watches[vhds]; v.flight != nil && l.synced != nil {
		dropped := l.pool.With(nil, set)
		var late []string
		for e := range v.flight.entries() {
			if dropped.Has(table.RouteConfigOf(e.Name)) {
				late = append(late, e.Name)
			}
		}
		if v.toRemove = l.pool.With(v.toRemove, names.Strings(late)); late != nil {
			v.notePending(l.newest())
		}
	}
	l.synced = l.pool.Without(l.synced, set)
	l.toLoad = l.pool.Without(l.toLoad, set)
}

// noteRoutesHeld records the route configurations that a proxy lists on reconnecting.
func (l *Ledger) noteRoutesHeld(has []NameVersion) {
	w := &l.watches[rds]
	var kept [][]byte
	for _, nv := range has {
		if w.names.HasBytes(nv.Name) {
			kept = append(kept, nv.Name)
		}
	}
	l.claimedRoutes = l.pool.With(nil, names.Slices(kept))
	if v := &l.watches[vhds]; v.on {
		l.synced = l.heldWithHosts()
		l.toLoad = l.pool.Union(l.toLoad, l.pool.Minus(l.claimedRoutes, l.synced))
		l.claimedRoutes, l.claimedHosts = nil, nil
		l.noteHostsPending()
	}
}

// beginVirtualHosts processes the first VHDS request. The virtual hosts that the proxy lists belong
// to route configurations that it has, if it listed those or did not request RDS yet.
func (l *Ledger) beginVirtualHosts(r *Request) {
	l.claimedHosts = l.pool.Of(routeConfigsOf(r.Initial)...)
	if l.watches[rds].on {
		l.synced = l.heldWithHosts()
		l.toLoad = l.pool.Union(l.toLoad, l.pool.Minus(l.claimedRoutes, l.synced))
		l.claimedRoutes = nil
	} else {
		l.synced = l.claimedHosts
	}
	l.sendMissingHosts(r.Initial)
	l.noteHostsPending()
}

// routeConfigsOf returns the route configurations of virtual hosts, most of them once.
func routeConfigsOf(hosts []NameVersion) (of []string) {
	for _, nv := range hosts {
		rc := nv.Name[:max(bytes.LastIndexByte(nv.Name, '/'), 0)]
		if len(of) == 0 || of[len(of)-1] != string(rc) {
			of = append(of, string(rc))
		}
	}
	return of
}

// amount is a number of resources and the sum of their hashes.
type amount struct {
	n   int
	sum uint64
}

// hostsOf counts the virtual hosts of route configurations. A proxy with sharded routes has either
// those of the shards or those of the whole. The result is shared by all streams that reconnect.
func (l *Ledger) hostsOf(routeConfigs *names.Set) (all amount) {
	for _, s := range l.states {
		of := s.Memo(hostsKey{routeConfigs}, func() any {
			var a amount
			for rc := range routeConfigs.All() {
				for e := range s.VirtualHosts(rc) {
					a.n++
					a.sum += table.Hash([]byte(e.Name), []byte(e.Version))
				}
			}
			return a
		}).(amount)
		all.n, all.sum = all.n+of.n, all.sum+of.sum
	}
	return all
}

type hostsKey struct{ routeConfigs *names.Set }

// heldWithHosts returns the route configurations that the proxy listed itself and by virtual hosts.
func (l *Ledger) heldWithHosts() *names.Set {
	return l.pool.Minus(l.claimedHosts, l.pool.Minus(l.claimedHosts, l.claimedRoutes))
}

// sendMissingHosts schedules the virtual hosts that the proxy lacks in route configurations that it
// has.
func (l *Ledger) sendMissingHosts(has []NameVersion) {
	if l.synced == nil || l.hasAll(vhds, &Request{Initial: has}) {
		return
	}
	set := make(map[string]bool, len(has))
	for _, nv := range has {
		set[string(nv.Name)] = true
	}
	var lacks []string
	for rc := range l.synced.All() {
		for _, s := range l.states {
			for e := range s.VirtualHosts(rc) {
				if !set[e.Name] {
					lacks = append(lacks, e.Name)
				}
			}
		}
	}
	w := &l.watches[vhds]
	w.toSend = l.pool.With(w.toSend, names.Strings(lacks))
}

// planHosts plans all virtual hosts of route configurations that the proxy ACKed.
func (l *Ledger) planHosts(p *plan) {
	if l.toLoad == nil {
		return
	}
	w, found := &l.watches[vhds], map[string]bool{}
	for i, s := range l.states {
		b := s.Select(table.Selection{Type: resource.VirtualHost, Upto: always, Names: l.toLoad})
		p.parts[MaxTables+i] = nonEmpty(b)
		for _, e := range b.Entries {
			if !w.holds(e) {
				found[table.RouteConfigOf(e.Name)] = true
			}
		}
	}
	for rc := range l.toLoad.All() {
		if !found[rc] {
			p.removed = append(p.removed, rc+"/none") // ends Envoy's waiting for them
		}
	}
	p.toLoad, p.explicit = nil, true
}

// notSynced returns the names of a set whose route configurations the proxy does not have, or has
// without virtual hosts.
func (l *Ledger) notSynced(set *names.Set) (out []string) {
	for n := range set.All() {
		if !l.subscribes(vhds, n) {
			out = append(out, n)
		}
	}
	return out
}
