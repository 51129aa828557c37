package ledger

import (
	"slices"

	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// reconnect compares what the proxy says it has with the tables.
func (l *Ledger) reconnect(k kind, r *Request) {
	w := &l.watches[k]
	if w.wild {
		l.keep(k)
	}
	if k == cds {
		l.returning, l.ordering.untold = true, !l.watches[eds].on && l.anyEndpoints(r.Initial)
	}
	if k == rds {
		defer l.routesKept(r.Initial)
	}
	if l.hasAll(k, r) {
		w.todo = nil
		return
	}
	var same, differ, gone [][]byte
	for _, nv := range r.Initial {
		e := l.lookupBytes(w.typ, nv.Name)
		switch {
		case e == nil:
			gone = append(gone, nv.Name)
		case e.Version == string(nv.Version) && !l.resend.HasBytes(nv.Name):
			same = append(same, nv.Name)
		default:
			differ = append(differ, nv.Name)
		}
	}
	if w.wild && k != vhds && len(same)+len(differ) < l.states[0].Len(w.typ)+l.states[1].Len(w.typ) {
		w.todo = l.pool.With(w.todo, names.Strings(l.missing(k, r.Initial)))
	}
	if w.wild {
		w.todo = l.pool.With(w.todo, names.Slices(differ))
	} else { // they are in todo as they were subscribed
		w.todo = l.pool.Without(w.todo, names.Slices(same))
		w.todo = l.pool.Without(w.todo, names.Slices(gone))
	}
	w.gone = l.pool.With(w.gone, names.Slices(gone))
}

// anyEndpoints tells whether a proxy asks for endpoints of any cluster that it has, as it has it: those
// in another form are sent, and waited for unless it refuses them.
func (l *Ledger) anyEndpoints(clusters []NameVersion) bool {
	return slices.ContainsFunc(clusters, func(nv NameVersion) bool {
		c := l.lookupBytes(resource.Cluster, nv.Name)
		return c != nil && c.Version == string(nv.Version) && l.lookupBytes(resource.Endpoints, nv.Name) != nil
	})
}

// hasAll tells whether the proxy has exactly what the tables have, at the cost of a hash
// for each resource: the usual case when a control plane was restarted.
func (l *Ledger) hasAll(k kind, r *Request) bool {
	w := &l.watches[k]
	a, b := l.states[0], l.states[1]
	if l.resend != nil || !w.wild && len(r.Subscribe) != len(r.Initial) {
		return false
	}
	want := amount{a.Len(w.typ) + b.Len(w.typ), a.Sum(w.typ) + b.Sum(w.typ)}
	if k == vhds && want.n != len(r.Initial) {
		want = l.hostsOf(l.pool.Of(routeConfigsOf(r.Initial)...))
	}
	if want.n != len(r.Initial) {
		return false
	}
	for i := range r.Initial {
		want.sum -= table.Hash(r.Initial[i].Name, r.Initial[i].Version)
	}
	return want.sum == 0
}

// keep takes the tables' present states as sent.
func (l *Ledger) keep(k kind) {
	w := &l.watches[k]
	w.answer = false
	for i, s := range l.states {
		w.at[i] = upTo(s)
		if k == cds {
			l.ordering.open[i] = s.Revision
		}
	}
}

// missing gives the names of the tables that the proxy does not have.
func (l *Ledger) missing(k kind, has []NameVersion) (out []string) {
	set := make(map[string]bool, len(has))
	for _, nv := range has {
		set[string(nv.Name)] = true
	}
	for _, s := range l.states {
		for e := range s.All(l.watches[k].typ) {
			if !set[e.Name] {
				out = append(out, e.Name)
			}
		}
	}
	return out
}
