package server

import (
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Who has a change is found when somebody asks, from the streams' cursors and the tables'
// logs. Nothing is kept for each change and proxy.

// Position is where a proxy stands towards one revision.
type Position string

// The positions.
const (
	// PositionACKed: it has accepted what the revision changed, or what came after it.
	PositionACKed Position = "acked"
	// PositionBehind: some of it was not sent yet, or not answered.
	PositionBehind Position = "behind"
	// PositionRefused: the proxy refused some of it, and that is held back.
	PositionRefused Position = "refused"
	// PositionNotConcerned: it subscribes to nothing of it.
	PositionNotConcerned Position = "notConcerned"
	// PositionDisconnected: its stream ended before it had it, and it has not come back.
	PositionDisconnected Position = "disconnected"
)

// Cause is why a proxy does not have a change.
type Cause string

// The causes.
const (
	CauseUnanswered   Cause = "unanswered"   // a response was sent and is not answered
	CauseUnread       Cause = "unread"       // it does not even read what it is sent
	CauseWaits        Cause = "waits"        // what comes before it must be taken first
	CauseUnsent       Cause = "unsent"       // it is about to be sent
	CauseRefused      Cause = "refused"      // the proxy said no
	CauseDisconnected Cause = "disconnected" // the stream has ended
)

// Reason is one cause with what is known of it.
type Reason struct {
	Cause Cause     `json:"cause"`
	Type  string    `json:"type,omitempty"`  // "CDS"
	Since time.Time `json:"since,omitzero"`  // unanswered, unread, waits, disconnected
	Names []string  `json:"names,omitempty"` // refused: the resource; waits: clusters whose endpoints are missing
	Text  string    `json:"text,omitempty"`  // refused: the proxy's words; waits: for what
}

// Whereabouts is one proxy's position and why it is there.
type Whereabouts struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	Namespace  string   `json:"namespace"`
	Position   Position `json:"position"`
	Superseded bool     `json:"superseded,omitempty"` // it has a newer form of what the revision changed
	Reasons    []Reason `json:"reasons,omitempty"`
	// ControlPlane is whose it is, in answers about several; empty: of the one that was asked.
	// The server does not know: who joins answers fills it in.
	ControlPlane string `json:"controlPlane,omitempty"`
}

// Question is about one revision, or about one object's part in it.
type Question struct {
	Revision model.Revision
	Object   model.Key // zero: the question is about the revision
	// Related tells whether a resource is made of the object; nil: nobody knows. It is
	// asked about tables that are newer than the revision, where nothing else tells.
	Related func(resource.Type, *table.Entry) bool
	// Shared: the revision changed other objects too, whose refusals do not count.
	Shared bool
}

// Distribution tells where each proxy stands: all that are connected, and those that left
// without the revision. It waits for an announcement under way, so that a revision that
// the Observer was told of is known to the streams.
func (s *Server) Distribution(q *Question) []Whereabouts {
	s.publishing.Lock()
	s.publishing.Unlock() //nolint:staticcheck // SA2001: the wait is what it is for
	sv := survey{Question: q, tables: map[*table.Table]*touched{}}
	var out []Whereabouts
	for _, st := range s.streams.all() {
		if w, ok := st.whereabouts(&sv); ok {
			out = append(out, w)
		}
	}
	return append(out, sv.without(s.Departed())...)
}

// survey is the work on one Question.
type survey struct {
	*Question
	tables map[*table.Table]*touched
}

// touched is what a question is about, of one table.
type touched struct {
	names [resource.NumTypes]map[string]bool // true: superseded
	count int
}

// maxAsked bounds how many resources of a revision are looked at one by one for each
// stream: the first load of a large mesh touches everything.
const maxAsked = 64

func (sv *survey) of(t *table.Table) *touched {
	if have := sv.tables[t]; have != nil {
		return have
	}
	s := t.State()
	var out *touched
	if s.Opened() >= sv.Revision && sv.Related != nil && sv.Object != (model.Key{}) {
		// All of the table must be looked at: once, however often somebody asks.
		out = s.Memo(memoKey{sv.Object, sv.Revision}, func() any { return sv.find(s) }).(*touched)
	} else {
		out = sv.find(s)
	}
	sv.tables[t] = out
	return out
}

// memoKey is what a table's answer depends on.
type memoKey struct {
	object   model.Key
	revision model.Revision
}

// find finds what a question is about in one state of a table.
func (sv *survey) find(s *table.State) *touched {
	out := &touched{}
	for typ := range resource.NumTypes {
		out.names[typ] = map[string]bool{}
		if s.Opened() >= sv.Revision && sv.Related != nil {
			sv.related(s, typ, out.names[typ])
		} else {
			for touch := range s.Touched(typ, sv.Revision) {
				out.names[typ][touch.Name] = touch.Superseded
			}
		}
		out.count += len(out.names[typ])
	}
	return out
}

// related finds what is made of the object in a table that was opened after the change.
// Whole route configurations are found by their virtual hosts, which cost less to look at.
func (sv *survey) related(s *table.State, typ resource.Type, into map[string]bool) {
	of, name := typ, func(n string) string { return n }
	if typ == resource.RouteConfig {
		of, name = resource.VirtualHost, table.RouteConfigOf
	}
	for e := range s.All(of) {
		if sv.Related(of, e) {
			into[name(e.Name)] = false
		}
	}
}

// whereabouts answers for one stream; false where it is not a proxy's yet.
func (st *stream) whereabouts(sv *survey) (Whereabouts, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ledger == nil || st.closed {
		return Whereabouts{}, false
	}
	w := Whereabouts{ID: st.proxy.ID, Name: st.proxy.Name, Namespace: st.proxy.Namespace, Position: PositionNotConcerned}
	if reasons := st.refusals(sv); len(reasons) > 0 {
		w.Position, w.Reasons = PositionRefused, reasons
		return w, true
	}
	sum := st.standings(sv)
	w.Superseded = sum.superseded
	settled := st.ledger.Settled() >= sv.Revision
	switch {
	case sum.behind, !settled && sum.newerBehind, st.toldOf(sv.Revision) && (sum.follows || sum.partly):
		w.Position, w.Superseded, w.Reasons = PositionBehind, false, st.reasons(sum.types)
	case !settled && sum.partly && st.owes(sv.Revision):
		w.Position, w.Reasons = PositionBehind, st.reasons(sum.types)
	case sum.follows:
		w.Position = PositionACKed
	}
	return w, true
}

// standings is how a stream stands towards all that a revision touched.
type standings struct {
	follows     bool // it subscribes to some of it
	behind      bool // of that, something is as the revision made it, and not ACKed
	newerBehind bool // something was changed again since, and that is not ACKed
	superseded  bool // all that it subscribes to was changed again
	current     bool // something is as the revision made it
	partly      bool // not all of what was touched is known, or looked at
	types       [resource.NumTypes]ledger.Standing
}

func (st *stream) standings(sv *survey) standings {
	var sum standings
	asked := 0
	for _, t := range st.tables {
		touched := sv.of(t)
		sum.partly = sum.partly || touched.count == 0 && t.State().Opened() < sv.Revision && t.State().Revision >= sv.Revision
		for typ := range resource.NumTypes {
			for name, superseded := range touched.names[typ] {
				if asked++; asked > maxAsked {
					sum.partly = true
					break
				}
				sum.add(typ, st.ledger.Standing(typ, name), superseded)
			}
		}
	}
	if sum.partly {
		sum.types = [resource.NumTypes]ledger.Standing{} // any of them
	}
	sum.superseded = sum.superseded && !sum.current
	return sum
}

func (sum *standings) add(typ resource.Type, s ledger.Standing, superseded bool) {
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
	_, found := slices.BinarySearch(st.account.owed, rev)
	return found
}

// toldOf tells whether the stream has yet to notice a revision.
func (st *stream) toldOf(rev model.Revision) bool {
	st.inbox.mu.Lock()
	defer st.inbox.mu.Unlock()
	return slices.Contains(st.inbox.published, rev)
}

// refusals are what the proxy refused of the revision.
func (st *stream) refusals(sv *survey) []Reason {
	if !st.ledger.Refuses() {
		return nil
	}
	var out []Reason
	for _, t := range st.ledger.Types() {
		for _, h := range t.Held {
			if st.isAbout(sv, t.Type, &h) {
				out = append(out, Reason{Cause: CauseRefused, Type: t.Type.String(), Names: []string{h.Name}, Text: h.Message})
			}
		}
	}
	return out
}

// isAbout tells whether a refusal is about what the question is about. A refusal of a whole
// response is, where it came after what was accepted last.
func (st *stream) isAbout(sv *survey, typ resource.Type, h *ledger.Held) bool {
	if h.Name == ledger.Whole {
		return sv.Revision > h.Since()
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
		if e != nil && (!sv.Shared || sv.Related == nil || sv.Related(typ, e)) {
			return true
		}
	}
	return false
}

// reasons tell why some types are behind; where none is given, why anything is.
func (st *stream) reasons(of [resource.NumTypes]ledger.Standing) []Reason {
	some := of != [resource.NumTypes]ledger.Standing{}
	var out []Reason
	for _, t := range st.ledger.Types() {
		if some && of[t.Type] == ledger.NotSubscribed {
			continue
		}
		if r := st.reason(&t); r.Cause != CauseUnsent || some {
			out = append(out, r)
		}
	}
	return out
}

// missing bounds how many clusters a reason names.
const missing = 3

func (st *stream) reason(t *ledger.TypeState) Reason {
	r := Reason{Cause: CauseUnsent, Type: t.Type.String()}
	switch {
	case t.InFlight && st.unread() > 0:
		r.Cause, r.Since = CauseUnread, st.inFlight(t.Type).since
	case t.InFlight:
		r.Cause, r.Since = CauseUnanswered, st.inFlight(t.Type).since
	case t.Waiting != "":
		r.Cause, r.Since, r.Text = CauseWaits, st.wait, t.Waiting
		if t.Type != resource.Cluster {
			r.Names = st.ledger.Missing(missing)
		}
	}
	return r
}
