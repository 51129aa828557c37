package server

import (
	"slices"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// maxAsked bounds how many resources of a revision are looked at one by one for each
// stream: the first load of a large mesh touches everything.
const maxAsked = 64

// whereabouts answers for one stream; false where it is not a proxy's yet.
func (st *stream) syncStatus(sv *distributionQuery) (distribution.ProxySyncStatus, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ledger == nil || st.closed {
		return distribution.ProxySyncStatus{}, false
	}
	w := distribution.ProxySyncStatus{ID: st.proxy.ID, Name: st.proxy.Name, Namespace: st.proxy.Namespace, Position: distribution.StateNotConcerned}
	if reasons := st.refusals(sv); len(reasons) > 0 {
		w.Position, w.Reasons = distribution.StateRefused, reasons
		return w, true
	}
	sum := st.statusCounts(sv)
	w.Superseded = sum.superseded
	settled := st.ledger.Settled() >= sv.Revision
	switch {
	case sum.behind, !settled && sum.newerBehind, st.toldOf(sv.Revision) && (sum.follows || sum.partly):
		w.Position, w.Superseded, w.Reasons = distribution.StateBehind, false, st.reasons(sum.types)
	case !settled && sum.partly && st.owes(sv.Revision):
		w.Position, w.Reasons = distribution.StateBehind, st.reasons(sum.types)
	case sum.follows:
		w.Position = distribution.StateACKed
	}
	return w, true
}

// statusCounts is how a stream stands towards all that a revision touched.
type statusCounts struct {
	follows     bool // it subscribes to some of it
	behind      bool // of that, something is as the revision made it, and not ACKed
	newerBehind bool // something was changed again since, and that is not ACKed
	superseded  bool // all that it subscribes to was changed again
	current     bool // something is as the revision made it
	partly      bool // not all of what was touched is known, or looked at
	types       [resource.NumTypes]ledger.ResourceStatus
}

func (st *stream) statusCounts(sv *distributionQuery) statusCounts {
	var sum statusCounts
	asked := 0
	for _, t := range st.tables {
		touched := sv.of(t)
		sum.partly = sum.partly || !touched.any && t.State().Opened() < sv.Revision && t.State().Revision >= sv.Revision
		for typ := range resource.NumTypes {
			for name, superseded := range touched.names[typ] {
				if asked++; asked > maxAsked {
					sum.partly = true
					break
				}
				sum.add(typ, st.ledger.Status(typ, name), superseded)
			}
		}
	}
	if sum.partly {
		sum.types = [resource.NumTypes]ledger.ResourceStatus{} // any of them
	}
	sum.superseded = sum.superseded && !sum.current
	return sum
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

// owes tells whether the stream was counted for a revision and has not settled it.
func (st *stream) owes(rev model.Revision) bool {
	_, found := slices.BinarySearch(st.account.pendingRevisions, rev)
	return found
}

// toldOf tells whether the stream has yet to notice a revision.
func (st *stream) toldOf(rev model.Revision) bool {
	st.inbox.mu.Lock()
	defer st.inbox.mu.Unlock()
	return slices.Contains(st.inbox.published, rev)
}

// refusals are what the proxy refused of the revision.
func (st *stream) refusals(sv *distributionQuery) []distribution.Reason {
	if !st.ledger.Refuses() {
		return nil
	}
	var out []distribution.Reason
	for _, t := range st.ledger.Types() {
		for _, h := range t.Held {
			if st.isAbout(sv, t.Type, &h) {
				out = append(out, distribution.Reason{Cause: distribution.CauseRefused, Type: t.Type.String(), Names: []string{h.Name}, Text: h.Message})
			}
		}
	}
	return out
}

// isAbout reports whether a refusal is about what the query is about. A refusal of a whole response
// is if the revision came after what the proxy accepted last, and changed resources of the type.
func (st *stream) isAbout(sv *distributionQuery, typ resource.Type, h *ledger.Held) bool {
	if h.Name == ledger.Whole {
		return sv.Revision > h.Since() && (!sv.Shared || st.changes(sv, typ))
	}
	for _, t := range st.tables {
		superseded, touched := sv.of(t).names[typ][h.Name]
		if !touched || superseded {
			continue
		}
		e := t.State().Get(typ, h.Name)
		if e != nil && h.Version != "" && h.Version != e.Version {
			continue // what was refused is replaced, and the stream has yet to come to it
		}
		if e != nil {
			return true
		}
	}
	return false
}

// changes reports whether the query is about resources of a type.
func (st *stream) changes(sv *distributionQuery, typ resource.Type) bool {
	return slices.ContainsFunc(st.tables, func(t *table.Table) bool { return len(sv.of(t).names[typ]) > 0 })
}

// reasons tell why some types are behind; where none is given, why anything is.
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

func (st *stream) reason(t *ledger.TypeState) distribution.Reason {
	r := distribution.Reason{Cause: distribution.CauseUnsent, Type: t.Type.String()}
	switch {
	case t.InFlight && st.unread() > 0:
		r.Cause, r.Since = distribution.CauseUnread, st.inFlight(t.Type).since
	case t.InFlight:
		r.Cause, r.Since = distribution.CauseUnanswered, st.inFlight(t.Type).since
	case t.Waiting != "":
		r.Cause, r.Since, r.Text = distribution.CauseWaits, st.wait, t.Waiting
		if t.Type != resource.Cluster {
			r.Names = st.ledger.Missing(missing)
		}
	}
	return r
}
