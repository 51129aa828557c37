package server

import (
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

var _ distribution.Proxies = (*Server)(nil)

// Distribution implements distribution.Proxies. The answer comes from the streams' cursors and the
// tables' logs; nothing is stored for each change and proxy.
func (s *Server) Distribution(query *distribution.Query) []distribution.ProxySyncStatus {
	s.publishing.Lock()
	s.publishing.Unlock() //nolint:staticcheck // SA2001: it waits for a publication in progress
	q := distributionQuery{Query: query, tables: map[*table.Table]*touched{}}
	var out []distribution.ProxySyncStatus
	gone := s.disconnected.all()
	for _, st := range s.streams.proxies() {
		w, ok := q.syncStatus(st)
		if !ok {
			continue
		}
		if other := st.asking(); other != nil {
			if of, ok := q.syncStatus(other); ok {
				w = further(w, of)
			}
		}
		out = append(out, w)
	}
	gone = eachOnce(gone, s.disconnected.all()) // proxies may have connected or disconnected meanwhile
	if len(gone) == 0 {
		return out
	}
	listed := map[string]bool{}
	for i := range out {
		listed[out[i].ID] = true
	}
	return append(out, q.without(absent(gone, listed))...)
}

// distributionQuery answers one query.
type distributionQuery struct {
	*distribution.Query
	tables map[*table.Table]*touched
}

// touched has the resources of one table that a query is about.
type touched struct {
	names [resource.NumTypes]map[string]bool // true: superseded
	about int                                // number of names
	any   bool                               // the revision changed something in the table, or may have
}

func (q *distributionQuery) of(t *table.Table) *touched {
	if have := q.tables[t]; have != nil {
		return have
	}
	s := t.State()
	var out *touched
	if s.Opened() >= q.Revision && q.Object != (model.Key{}) {
		// The whole table must be searched: once, however often it is asked.
		out = s.Memo(memoKey{q.Object, q.Revision}, func() any { return q.find(s) }).(*touched)
	} else {
		out = q.find(s)
	}
	q.tables[t] = out
	return out
}

// memoKey is what a table's answer depends on.
type memoKey struct {
	object   model.Key
	revision model.Revision
}

// find finds the resources of a table that the query is about.
func (q *distributionQuery) find(s *table.State) *touched {
	out := &touched{}
	for typ := range resource.NumTypes {
		out.names[typ] = q.Resources(s, typ)
		out.about += len(out.names[typ])
		for range s.Touched(typ, q.Revision) {
			out.any = true
			break
		}
	}
	return out
}

// further returns the status of a proxy with two streams: that of the one which is further behind.
func further(a, b distribution.ProxySyncStatus) distribution.ProxySyncStatus {
	order := []distribution.SyncState{distribution.StateNotConcerned, distribution.StateACKed, distribution.StateBehind, distribution.StateRefused}
	if slices.Index(order, b.Position) > slices.Index(order, a.Position) {
		return b
	}
	return a
}

// maxLookups bounds how many resources of a revision are looked up for each stream: the first load
// of a large mesh touches everything.
const maxLookups = 64

// syncStatus answers for one stream; false if its proxy does not count as connected.
func (q *distributionQuery) syncStatus(st *stream) (distribution.ProxySyncStatus, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.present.Load() {
		return distribution.ProxySyncStatus{}, false
	}
	w := distribution.ProxySyncStatus{ID: st.proxy.ID, Name: st.proxy.Name, Namespace: st.proxy.Namespace, Position: distribution.StateNotConcerned}
	if reasons := q.refusals(st); len(reasons) > 0 {
		w.Position, w.Reasons = distribution.StateRefused, reasons
		return w, true
	}
	sum := q.statusCounts(st)
	w.Superseded = sum.superseded
	settled := st.ledger.Settled() >= q.Revision
	switch {
	case sum.behind, !settled && sum.newerBehind, st.pending.isPublished(q.Revision) && (sum.follows || sum.partly):
		w.Position, w.Superseded, w.Reasons = distribution.StateBehind, false, st.reasons(sum.types)
	case !settled && sum.partly && st.pending.has(q.Revision):
		w.Position, w.Reasons = distribution.StateBehind, st.reasons(sum.types)
	case sum.follows:
		w.Position = distribution.StateACKed
	}
	return w, true
}

// statusCounts summarizes the statuses of all resources that a revision touched, on one stream.
type statusCounts struct {
	follows     bool // the proxy subscribes to some of them
	behind      bool // of these, one is as the revision made it, and not ACKed
	newerBehind bool // one was changed again since, and that change is not ACKed
	superseded  bool // one was changed again
	current     bool // one is as the revision made it
	partly      bool // not all of what was touched is known, or was looked up
	types       [resource.NumTypes]ledger.ResourceStatus
}

func (q *distributionQuery) statusCounts(st *stream) statusCounts {
	var sum statusCounts
	asked, any := 0, false
	for _, t := range st.tables {
		touched := q.of(t)
		any = any || touched.any
		sum.partly = sum.partly || !touched.any && t.State().Opened() < q.Revision && t.State().Revision >= q.Revision
		for typ := range resource.NumTypes {
			for name, superseded := range touched.names[typ] {
				if asked++; asked > maxLookups {
					sum.partly = true
					break
				}
				sum.add(typ, st.statusOf(typ, name), superseded)
			}
		}
	}
	sum.partly = sum.partly || !any // it may have moved to these tables with the revision
	if sum.partly {
		sum.types = [resource.NumTypes]ledger.ResourceStatus{} // any type may be behind
	}
	sum.superseded = sum.superseded && !sum.current
	return sum
}

// statusOf returns the status of a resource on a stream. Endpoints of a cluster that the proxy does not have yet have the status of
// the cluster: the proxy subscribes to them when it has it.
func (st *stream) statusOf(typ resource.Type, name string) ledger.ResourceStatus {
	s := st.ledger.Status(typ, name)
	if s != ledger.NotSubscribed || typ != resource.Endpoints {
		return s
	}
	if c := st.ledger.Status(resource.Cluster, name); c == ledger.Unsent || c == ledger.Unanswered {
		return c
	}
	return s
}

func (sum *statusCounts) add(typ resource.Type, s ledger.ResourceStatus, superseded bool) {
	if s == ledger.NotSubscribed {
		return
	}
	sum.follows = true
	sum.superseded, sum.current = sum.superseded || superseded, sum.current || !superseded
	if s == ledger.Unanswered || s == ledger.Unsent {
		sum.behind, sum.newerBehind = sum.behind || !superseded, sum.newerBehind || superseded
		sum.types[typ] = max(sum.types[typ], s)
	}
}

// refusals returns the resources of the revision that the proxy refused.
func (q *distributionQuery) refusals(st *stream) []distribution.Reason {
	if !st.ledger.Refuses() {
		return nil
	}
	var out []distribution.Reason
	for _, t := range st.ledger.Types() {
		for _, h := range t.Held {
			if q.isAbout(st, t.Type, &h) {
				out = append(out, distribution.Reason{Cause: distribution.CauseRefused, Type: t.Type.String(), Names: []string{h.Name}, Text: h.Message})
			}
		}
	}
	return out
}

// isAbout reports whether a refusal concerns the query. A refusal of a whole response does, if the
// revision is newer than the last accepted response, and changed resources of the type.
func (q *distributionQuery) isAbout(st *stream, typ resource.Type, h *ledger.Held) bool {
	if h.Name == ledger.Whole {
		return q.Revision > h.Since() && (!q.Shared || q.changes(st, typ))
	}
	for _, t := range st.tables {
		superseded, touched := q.of(t).names[typ][h.Name]
		if !touched || superseded {
			continue
		}
		e := t.State().Get(typ, h.Name)
		if e != nil && h.Version != "" && h.Version != e.Version {
			continue // what was refused is replaced, and the stream has not sent that yet
		}
		if e != nil {
			return true
		}
	}
	return false
}

// changes reports whether the query is about resources of a type.
func (q *distributionQuery) changes(st *stream, typ resource.Type) bool {
	return slices.ContainsFunc(st.tables, func(t *table.Table) bool { return len(q.of(t).names[typ]) > 0 })
}

// reasons returns why some types are behind; if none is given, why anything is.
func (st *stream) reasons(of [resource.NumTypes]ledger.ResourceStatus) []distribution.Reason {
	some := of != [resource.NumTypes]ledger.ResourceStatus{}
	var out []distribution.Reason
	for _, t := range st.ledger.Types() {
		if some && of[t.Type] == ledger.NotSubscribed {
			continue
		}
		if r := st.reason(&t); r.Cause != distribution.CauseUnsent || some {
			out = append(out, r)
		}
	}
	return out
}

// missing bounds how many clusters a reason names.
const missing = 3

// unresolved returns clusters that the proxy may hold back its answer for: it resolves their names.
func (st *stream) unresolved() (out []string) {
	for e := range st.ledger.Unanswered(resource.Cluster) {
		if e.Resource().IsResolved() && !slices.Contains(out, e.Name) {
			if out = append(out, e.Name); len(out) == missing {
				break
			}
		}
	}
	return out
}

func (st *stream) reason(t *ledger.TypeState) distribution.Reason {
	r := distribution.Reason{Cause: distribution.CauseUnsent, Type: t.Type.String()}
	switch {
	case t.InFlight && st.delivery.unread() > 0:
		r.Cause, r.Since = distribution.CauseUnread, st.delivery.inFlight(t.Type).since
	case t.InFlight:
		r.Cause, r.Since = distribution.CauseUnanswered, st.delivery.inFlight(t.Type).since
		if t.Type == resource.Cluster && time.Since(r.Since) >= answerTimeout {
			r.Names = st.unresolved()
		}
	case t.Waiting != "":
		r.Cause, r.Since, r.Text = distribution.CauseWaits, st.wait, t.Waiting
		if t.Type != resource.Cluster {
			r.Names = st.ledger.Missing(missing)
		}
	}
	return r
}
