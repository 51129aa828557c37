package ledger

import (
	"bytes"

	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Envoy holds virtual hosts inside their route configuration. It drops them with it, and
// drops those that it gets before it. So a route configuration is in one of three
// places: in none, from its subscription to the ACK of its shell; in load from then on,
// until all its virtual hosts are sent; in synced, where only changes are.

// routesAccepted notes the route configurations that the proxy holds from now on.
func (l *Ledger) routesAccepted(f *flight) {
	if !l.strategy.VirtualHosts {
		return
	}
	for e := range f.entries() {
		later := !l.watches[vhds].on && l.kept.Has(e.Name) // it will tell what it has
		if l.watches[rds].names.Has(e.Name) && !l.synced.Has(e.Name) && !later {
			l.load = l.pool.With(l.load, names.Strings([]string{e.Name}))
		}
	}
	l.oweLoad()
}

func (l *Ledger) oweLoad() {
	if l.load != nil {
		l.watches[vhds].owe(l.newest())
	}
}

// dropRoutes notes that the proxy has dropped route configurations, or begins anew with
// them. Virtual hosts that are in flight may reach the new ones.
func (l *Ledger) dropRoutes(set names.List) {
	if v := &l.watches[vhds]; v.flight != nil && l.synced != nil {
		dropped := l.pool.With(nil, set)
		var late []string
		for e := range v.flight.entries() {
			if dropped.Has(table.RouteConfigOf(e.Name)) {
				late = append(late, e.Name)
			}
		}
		if v.gone = l.pool.With(v.gone, names.Strings(late)); late != nil {
			v.owe(l.newest())
		}
	}
	l.synced = l.pool.Without(l.synced, set)
	l.load = l.pool.Without(l.load, set)
}

// routesKept takes the route configurations that a proxy holds as it connects again.
func (l *Ledger) routesKept(has []NameVersion) {
	w := &l.watches[rds]
	var kept [][]byte
	for _, nv := range has {
		if w.names.HasBytes(nv.Name) {
			kept = append(kept, nv.Name)
		}
	}
	l.kept = l.pool.With(nil, names.Slices(kept))
	if v := &l.watches[vhds]; v.on {
		l.synced = l.relisted()
		l.load = l.pool.Union(l.load, l.pool.Minus(l.kept, l.synced))
		l.kept, l.listed = nil, nil
		l.oweLoad()
	}
}

// beginVirtualHosts takes the first VHDS request: the virtual hosts that the proxy has
// belong to route configurations that it has, if it says so or has not been asked yet.
func (l *Ledger) beginVirtualHosts(r *Request) {
	l.listed = l.pool.Of(routeConfigsOf(r.Initial)...)
	if l.watches[rds].on {
		l.synced = l.relisted()
		l.load = l.pool.Union(l.load, l.pool.Minus(l.kept, l.synced))
		l.kept = nil
	} else {
		l.synced = l.listed
	}
	l.complete(r.Initial)
	l.oweLoad()
}

// routeConfigsOf are those of virtual hosts, most of them once.
func routeConfigsOf(hosts []NameVersion) (of []string) {
	for _, nv := range hosts {
		rc := nv.Name[:max(bytes.LastIndexByte(nv.Name, '/'), 0)]
		if len(of) == 0 || of[len(of)-1] != string(rc) {
			of = append(of, string(rc))
		}
	}
	return of
}

// amount is how many resources there are, and the sum of their hashes.
type amount struct {
	n   int
	sum uint64
}

// hostsOf is what virtual hosts there are of some route configurations. A proxy with routes in
// buckets has them of those alone, or of the whole alone. It is worked out once for all that connect again.
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

// relisted is what the proxy listed of both: route configurations and virtual hosts in them.
func (l *Ledger) relisted() *names.Set {
	return l.pool.Minus(l.listed, l.pool.Minus(l.listed, l.kept))
}

// complete has the virtual hosts sent that the proxy lacks in route configurations that
// it holds, and forgets of those that it does not hold.
func (l *Ledger) complete(has []NameVersion) {
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
	w.todo = l.pool.With(w.todo, names.Strings(lacks))
}

// planLoad takes all virtual hosts of route configurations that the proxy has ACKed.
func (l *Ledger) planLoad(p *plan) {
	if l.load == nil {
		return
	}
	w, found := &l.watches[vhds], map[string]bool{}
	for i, s := range l.states {
		b := s.Select(table.Selection{Type: resource.VirtualHost, Upto: always, Names: l.load})
		p.parts[MaxTables+i] = nonEmpty(b)
		for _, e := range b.Entries {
			if !w.holds(e) {
				found[table.RouteConfigOf(e.Name)] = true
			}
		}
	}
	for rc := range l.load.All() {
		if !found[rc] {
			p.removed = append(p.removed, rc+"/none") // ends Envoy's waiting for them
		}
	}
	p.load, p.explicit = nil, true
}

// notSynced are the names of a set whose route configurations are yet to be loaded, with
// all their virtual hosts, or are not held at all.
func (l *Ledger) notSynced(set *names.Set) (out []string) {
	for n := range set.All() {
		if !l.subscribes(vhds, n) {
			out = append(out, n)
		}
	}
	return out
}
