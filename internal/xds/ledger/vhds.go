package ledger

import (
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/routeshard"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// virtualHosts decides when virtual hosts are sent (VHDS).
//
// Envoy keeps virtual hosts in their route configuration, drops them with it, and ignores those that
// come before it. A route configuration is in one of three states: in no set, from its subscription
// to its ACK; in toLoad, until all of its virtual hosts are sent; in synced, where only changes are
// sent.
type virtualHosts struct {
	*streamState
	claimed *names.Set // route configurations of the virtual hosts that the proxy listed on reconnecting
}

// routesAccepted records the route configurations that the proxy has from now on.
func (v *virtualHosts) routesAccepted(f *flight) {
	if !v.strategy.VirtualHosts {
		return
	}
	for e := range f.entries() {
		if routeshard.IsOnDemand(e.Name) {
			continue // it has its virtual hosts
		}
		later := !v.watches[vhds].on && v.claimedRoutes.Has(e.Name) // the proxy will list its virtual hosts
		if v.watches[rds].names.Has(e.Name) && !v.synced.Has(e.Name) && !later {
			v.toLoad = v.pool.With(v.toLoad, names.Strings([]string{e.Name}))
		}
	}
	v.notePending()
}

// notePending records that virtual hosts are to be sent.
func (v *virtualHosts) notePending() {
	if v.toLoad != nil {
		v.watches[vhds].notePending(v.newest())
	}
}

// dropRoutes records that the proxy dropped route configurations, or subscribed to them again.
// Virtual hosts in flight may reach the new ones.
func (v *virtualHosts) dropRoutes(set names.List) {
	if w := &v.watches[vhds]; w.flight != nil && v.synced != nil {
		dropped := v.pool.With(nil, set)
		var late []string
		for e := range w.flight.entries() {
			if dropped.Has(table.RouteConfigOf(e.Name)) {
				late = append(late, e.Name)
			}
		}
		if w.toRemove = v.pool.With(w.toRemove, names.Strings(late)); late != nil {
			w.notePending(v.newest())
		}
	}
	v.synced = v.pool.Without(v.synced, set)
	v.toLoad = v.pool.Without(v.toLoad, set)
}

// routesListed records the route configurations that a proxy lists on reconnecting.
func (v *virtualHosts) routesListed(has []NameVersion) {
	w := &v.watches[rds]
	var kept [][]byte
	for _, nv := range has {
		if w.names.HasBytes(nv.Name) && !routeshard.IsOnDemand(string(nv.Name)) {
			kept = append(kept, nv.Name)
		}
	}
	v.claimedRoutes = v.pool.With(nil, names.Slices(kept))
	if v.watches[vhds].on {
		v.loadUnclaimed()
		v.claimed = nil
		v.notePending()
	}
}

// begin processes the first VHDS request. The virtual hosts that the proxy lists belong to route
// configurations that it has, if it listed those or did not request RDS yet.
func (v *virtualHosts) begin(r *Request) {
	v.claimed = v.pool.Of(routeConfigsOf(r.Initial)...)
	if v.watches[rds].on {
		v.loadUnclaimed()
	} else {
		v.synced = v.claimed
	}
	v.sendMissing(r.Initial)
	v.notePending()
}

// loadUnclaimed sorts the route configurations that the proxy listed: those with virtual hosts are
// synced, and the others are to be loaded.
func (v *virtualHosts) loadUnclaimed() {
	v.synced = v.pool.Minus(v.claimed, v.pool.Minus(v.claimed, v.claimedRoutes))
	v.toLoad = v.pool.Union(v.toLoad, v.pool.Minus(v.claimedRoutes, v.synced))
	v.claimedRoutes = nil
}

// routeConfigsOf returns the route configurations of virtual hosts, most of them once.
func routeConfigsOf(hosts []NameVersion) (of []string) {
	for _, nv := range hosts {
		rc := table.RouteConfigOf(nv.Name)
		if len(of) == 0 || of[len(of)-1] != string(rc) {
			of = append(of, string(rc))
		}
	}
	return of
}

// sendMissing schedules the virtual hosts that the proxy lacks in route configurations that it has.
func (v *virtualHosts) sendMissing(has []NameVersion) {
	if v.synced == nil || v.hasAll(vhds, &Request{Initial: has}) {
		return
	}
	set := make(map[string]bool, len(has))
	for _, nv := range has {
		set[string(nv.Name)] = true
	}
	var lacks []string
	for rc := range v.synced.All() {
		for _, s := range v.states {
			for e := range s.VirtualHosts(rc) {
				if !set[e.Name] {
					lacks = append(lacks, e.Name)
				}
			}
		}
	}
	w := &v.watches[vhds]
	w.toSend = v.pool.With(w.toSend, names.Strings(lacks))
}

// notSynced returns the names of a set whose route configurations the proxy does not have, or has
// without virtual hosts.
func (v *virtualHosts) notSynced(set *names.Set) (out []string) {
	for n := range set.All() {
		if !v.subscribes(vhds, n) {
			out = append(out, n)
		}
	}
	return out
}

// willBeSent reports whether a route configuration that the proxy does not have will be sent.
func (v *virtualHosts) willBeSent(rc string) bool {
	return v.watches[rds].names.Has(rc) && v.lookup(v.strategy.Routes, rc) != nil
}

// mayDrain reports whether a virtual host belongs to a route configuration that is removed but that
// the proxy subscribes to: a draining listener may still use it, and another listener may take it
// over.
func (v *virtualHosts) mayDrain(k kind, name string) bool {
	return k == vhds && v.watches[rds].names.Has(table.RouteConfigOf(name))
}
