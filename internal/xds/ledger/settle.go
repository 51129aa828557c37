package ledger

import (
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
)

// Settle gives the newest revision up to which everything that concerns the stream is
// ACKed or held back, and whether something was refused since it was asked last. The
// revision never goes back.
func (l *Ledger) Settle() (rev model.Revision, refused bool) {
	floor, heldUp := l.newest(), l.heldUp()
	for k := range kinds {
		if l.off(k) {
			continue
		}
		if heldUp && k <= eds && !l.watches[k].answer {
			floor = min(floor, l.floorOfChanges(k))
		} else {
			floor = min(floor, l.floor(k, false))
		}
	}
	if l.orderingBlocks() {
		for i, s := range l.states {
			if s.LastAdded(resource.Cluster) > l.ordering.open[i] {
				floor = min(floor, l.ordering.open[i])
			}
		}
	}
	l.settled = max(l.settled, floor)
	refused, l.nacked = l.nacked, false
	return l.settled, refused
}

// heldUp tells whether removals of clusters, and with them of endpoints, wait for
// nothing but resources that are held back. Then they count as settled, as those do.
func (l *Ledger) heldUp() bool {
	return len(l.watches[cds].held)+len(l.watches[lds].held)+len(l.watches[rds].held)+len(l.watches[vhds].held) > 0 &&
		min(l.floor(lds, false), l.floor(rds, false), l.floor(vhds, false)) == always
}

// Sent is the newest revision of which every type that is subscribed was sent all that
// may be sent, ACKed or not.
func (l *Ledger) Sent() model.Revision {
	sent := l.newest()
	for k := range kinds {
		if l.off(k) {
			continue
		}
		w := &l.watches[k]
		for i, s := range l.states {
			if s.LastChanged(w.typ) > w.at[i].add {
				sent = min(sent, w.at[i].firm)
			}
		}
	}
	return sent
}

// InFlight tells whether a response of a type is unanswered.
func (l *Ledger) InFlight(t resource.Type) bool {
	w := &l.watches[kindsOf[t]]
	return w.typ == t && w.flight != nil
}

// TypeState is a watch, for people.
type TypeState struct {
	Type       resource.Type
	Wildcard   bool
	Subscribed int
	Sent       model.Revision
	ACKed      model.Revision
	InFlight   bool
	Waiting    string
	Version    string
	Held       []Held
}

// Types gives the state of each type that was asked for.
func (l *Ledger) Types() []TypeState {
	var out []TypeState
	for k := range kinds {
		w := &l.watches[k]
		if !w.on {
			continue
		}
		t := TypeState{Type: w.typ, Wildcard: w.wild, Subscribed: w.names.Len(), InFlight: w.flight != nil, Version: w.version}
		for i := range l.states {
			t.Sent = max(t.Sent, w.at[i].add)
			t.ACKed = max(t.ACKed, w.acked(i).add)
		}
		if w.flight == nil && l.limit(k) != always && (w.answer || !l.upToDate(w) || !w.idle()) {
			t.Waiting = "clusters and their endpoints"
			if l.limitOfClusters() == always {
				t.Waiting = "scopes and their routes"
			}
		} else if k == cds && w.flight == nil && (w.gone != nil || !l.upToDate(w)) {
			t.Waiting = "listeners and routes, to remove clusters"
		}
		for _, h := range w.held {
			t.Held = append(t.Held, *h)
		}
		out = append(out, t)
	}
	return out
}

// Settled is what Settle gave last.
func (l *Ledger) Settled() model.Revision { return l.settled }
