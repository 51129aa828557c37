package ledger

import (
	"slices"

	"github.com/moonsail/moonsail/internal/base/defect"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// reconnect compares what the proxy lists on reconnecting with the tables.
func (l *Ledger) reconnect(k kind, r *Request) {
	w := &l.watches[k]
	if w.wildcard {
		l.takeAsSent(k)
	}
	if k == cds && l.partial {
		l.carryListed(r.Initial)
	}
	if l.asked {
		listed := make([]string, len(r.Initial))
		for i := range r.Initial {
			listed[i] = string(r.Initial[i].Name)
		}
		l.grant(listed)
	}
	if k == cds && !l.asked {
		l.reconnecting, l.ordering.endpointsUnknown = true, !l.watches[eds].on && l.anyEndpoints(r.Initial)
	}
	if k == rds {
		defer l.hosts.routesListed(r.Initial)
	}
	if l.hasAll(k, r) {
		w.toSend = nil
		return
	}
	same, differ, gone := l.compareListed(k, r.Initial)
	if w.wildcard && k != vhds && len(same)+len(differ) < l.states[0].Len(w.typ)+l.states[1].Len(w.typ) {
		missing := l.missing(k, r.Initial)
		w.toSend = l.pool.With(w.toSend, names.Strings(missing))
		if k == cds {
			l.newClusters = l.pool.Of(missing...)
		}
	}
	if w.wildcard {
		w.toSend = l.pool.With(w.toSend, names.Slices(differ))
	} else { // they are in toSend as they were subscribed
		w.toSend = l.pool.Without(w.toSend, names.Slices(same))
		w.toSend = l.pool.Without(w.toSend, names.Slices(gone))
	}
	w.toRemove = l.pool.With(w.toRemove, names.Slices(gone))
}

// compareListed divides the names that the proxy lists: those whose newest form it has, those of which it has another form,
// and those that no table has.
func (l *Ledger) compareListed(k kind, listed []NameVersion) (same, differ, gone [][]byte) {
	for _, nv := range listed {
		e := l.lookupBytes(l.watches[k].typ, nv.Name)
		switch {
		case e == nil && string(nv.Version) == resource.Absent && l.asked:
			same = append(same, nv.Name) // the proxy knows that it does not exist
		case e == nil:
			gone = append(gone, nv.Name)
		case defect.StaleEndpoints.On() && k == eds, defect.WrongVersion.On() && k != eds:
			same = append(same, nv.Name)
		case e.Version == string(nv.Version) && !l.resend.HasBytes(nv.Name):
			same = append(same, nv.Name)
		default:
			differ = append(differ, nv.Name)
		}
	}
	return same, differ, gone
}

// unlisted reports whether the proxy has connected again and may have resources of a type that it has not listed yet.
// Nothing is known about these. A proxy without such resources never lists them: StopWaiting ends the wait.
func (l *Ledger) unlisted(k kind) bool {
	switch {
	case l.watches[k].on:
		return false
	case k == eds:
		return l.ordering.endpointsUnknown
	case k == vhds && !l.strategy.VirtualHosts, k == srds && !l.strategy.Scopes:
		return false
	}
	return l.reconnecting && k >= srds && k <= vhds
}

// Status returns the status of a resource, at a cost that depends only on what is in flight.
func (l *Ledger) Status(t resource.Type, name string) ResourceStatus {
	if k := kindsOf[t]; l.unlisted(k) && l.watches[k].typ == t && l.lookup(t, name) != nil {
		return Unsent
	}
	return l.streamState.Status(t, name)
}

// Behind reports whether anything of a type is not ACKed.
func (l *Ledger) Behind(t resource.Type) bool {
	return l.unlisted(kindsOf[t]) || l.streamState.Behind(t)
}

// HasSince reports whether the proxy has a resource as it was at a revision, or newer; also if it
// does not subscribe to it.
func (l *Ledger) HasSince(t resource.Type, name string, rev model.Revision) bool {
	if k := kindsOf[t]; l.unlisted(k) && l.watches[k].typ == t {
		return false
	}
	return l.streamState.HasSince(t, name, rev)
}

// anyEndpoints reports whether a proxy requests endpoints of any cluster that it has in the current
// form. Clusters in another form are sent, and their endpoints waited for.
func (st *streamState) anyEndpoints(clusters []NameVersion) bool {
	return slices.ContainsFunc(clusters, func(nv NameVersion) bool {
		c := st.lookupBytes(resource.Cluster, nv.Name)
		return c != nil && c.Version == string(nv.Version) && st.lookupBytes(resource.Endpoints, nv.Name) != nil
	})
}

// hasAll reports whether the proxy has exactly what the tables have, which is usual after a restart
// of the control plane. It costs one hash for each resource.
func (st *streamState) hasAll(k kind, r *Request) bool {
	w := &st.watches[k]
	a, b := st.states[0], st.states[1]
	if st.resend != nil || k == cds && st.partial || !w.wildcard && len(r.Subscribe) != len(r.Initial) {
		return false
	}
	want := amount{a.Len(w.typ) + b.Len(w.typ), a.Sum(w.typ) + b.Sum(w.typ)}
	if k == vhds && want.n != len(r.Initial) {
		want = st.hostsOf(st.pool.Of(routeConfigsOf(r.Initial)...))
	}
	if want.n != len(r.Initial) {
		return false
	}
	for i := range r.Initial {
		want.sum -= table.Hash(r.Initial[i].Name, r.Initial[i].Version)
	}
	return want.sum == 0
}

// takeAsSent sets the cursors to the current states of the tables.
func (l *Ledger) takeAsSent(k kind) {
	w := &l.watches[k]
	w.firstPending = false
	for i, s := range l.states {
		w.at[i] = upTo(s)
		if k == cds {
			l.ordering.open[i] = s.Revision
		}
	}
}

// missing returns the names of the tables that the proxy does not have.
func (st *streamState) missing(k kind, has []NameVersion) (out []string) {
	set := make(map[string]bool, len(has))
	for _, nv := range has {
		set[string(nv.Name)] = true
	}
	lacks := func(e *table.Entry) {
		if !set[e.Name] {
			out = append(out, e.Name)
		}
	}
	for _, s := range st.states {
		if k == cds && st.partial {
			for _, e := range s.NotOnDemand() {
				lacks(e) // those that the stream carries beside are listed
			}
			continue
		}
		for e := range s.All(st.watches[k].typ) {
			lacks(e)
		}
	}
	return out
}

// amount is a number of resources and the sum of their hashes.
type amount struct {
	n   int
	sum uint64
}

// hostsOf counts the virtual hosts of route configurations. A proxy with sharded routes has either
// those of the shards or those of the whole. The result is shared by all streams that reconnect.
func (st *streamState) hostsOf(routeConfigs *names.Set) (all amount) {
	for _, s := range st.states {
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
