package ledger

import (
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// follow does what sending a response brings with it.
func (l *Ledger) follow(k kind, f *flight, p *plan) {
	switch k {
	case cds:
		l.clustersSent(f)
	case lds:
		l.listenersSent(f)
	case rds:
		if len(p.removed) > 0 {
			l.dropRoutes(names.Strings(p.removed))
		}
	case vhds:
		if loaded := l.pool.Minus(l.load, p.load); loaded != nil {
			l.synced, l.load = l.pool.Union(l.synced, loaded), p.load
		}
	}
}

// clustersSent has the endpoints of changed clusters sent again: Envoy keeps a changed
// cluster warming until they come, and does not ask, as it has subscribed them already.
func (l *Ledger) clustersSent(f *flight) {
	e := &l.watches[eds]
	var again, later, all, ahead, known []string
	for i, part := range f.parts[:MaxTables] {
		if part == nil {
			continue
		}
		for _, c := range part.Entries {
			if l.protocol == Sotw && c.Revision <= f.from[i].add {
				continue // there because the response is whole
			}
			switch {
			case e.on && e.names.Has(c.Name) && l.lookup(resource.Endpoints, c.Name) != nil:
				again = append(again, c.Name)
			case !e.on && (f.explicit || c.Added <= f.from[i].add):
				later = append(later, c.Name)
			case l.isPrefetched(c):
				ahead = append(ahead, c.Name)
				if l.sentBefore(c, i, f) {
					known = append(known, c.Name)
				}
			}
			if f.explicit || l.watches[cds].held[c.Name] != nil { // or it was refused before
				all = append(all, c.Name)
			}
		}
	}
	l.resend = l.pool.With(l.resend, names.Strings(later))
	l.prefetchEndpoints(ahead, known)
	if len(again) > 0 {
		e.todo = l.pool.With(e.todo, names.Strings(again))
		e.owe(l.newest())
	}
	if len(all) > 0 {
		f.explicit = true
		l.watches[cds].owe(l.newest())
		l.waitFor(all)
	}
}
