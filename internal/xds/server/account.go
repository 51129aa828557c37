package server

import (
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// maxOwed is the number of published revisions that a stream is followed through at the
// same time. One that is further behind is given up on for the oldest ones.
const maxOwed = 1024

// account is which published revisions a stream has not settled. They are exactly those
// that it was counted for.
type account struct {
	pendingRevisions []model.Revision  // ascending
	sent             int               // of owed, reported as sent
	newest           model.Revision    // of the tables when a response was sent last
	refused          model.Revision    // newest when a response was refused last
	before           model.Revision    // what the proxy had when its last stream ended; 0: not known
	room             [1]model.Revision // owed begins in it, and is seldom longer
}

// outcome is what became of a settled revision. By revisions and not by events, as a
// stream may be done with one before it is published.
func (a *account) outcome(rev model.Revision) distribution.Outcome {
	switch {
	case rev <= a.refused:
		return distribution.NACKed
	case rev <= a.newest:
		return distribution.ACKed
	}
	return distribution.NotConcerned
}

// settle reports what has become of the owed revisions. The stream's lock is held.
func (st *stream) settle(now time.Time) {
	a := &st.account
	rev, refused := st.ledger.Settle()
	if refused {
		a.refused = a.newest
	}
	if len(a.pendingRevisions) == 0 {
		return
	}
	st.reportSent(now)
	for len(a.pendingRevisions) > 0 && a.pendingRevisions[0] <= rev {
		outcome, n := a.outcome(a.pendingRevisions[0]), 1
		for n < len(a.pendingRevisions) && a.pendingRevisions[n] <= rev && a.outcome(a.pendingRevisions[n]) == outcome {
			n++
		}
		st.report(n, outcome, now)
	}
	if over := len(a.pendingRevisions) - maxOwed; over > 0 {
		st.report(over, distribution.Gone, now)
	}
}

func (st *stream) reportSent(now time.Time) {
	a := &st.account
	if a.sent == len(a.pendingRevisions) || a.newest < a.pendingRevisions[a.sent] {
		return
	}
	sent := min(a.newest, st.ledger.Sent())
	for a.sent < len(a.pendingRevisions) && a.pendingRevisions[a.sent] <= sent {
		st.server.obs.Sent(a.pendingRevisions[a.sent], now)
		a.sent++
	}
}

// report tells the outcome of the oldest n owed revisions, in runs without gaps.
func (st *stream) report(n int, outcome distribution.Outcome, now time.Time) {
	a := &st.account
	for from := 0; from < n; {
		to := from
		for to+1 < n && a.pendingRevisions[to+1] == a.pendingRevisions[to]+1 {
			to++
		}
		if witness := st.server.opts.Witness; witness != nil {
			witness(distribution.Settlement{Proxy: st.proxy, From: a.pendingRevisions[from] - 1, To: a.pendingRevisions[to], Outcome: outcome, At: now, Text: st.refusal(outcome)})
		}
		st.server.obs.Settled(a.pendingRevisions[from]-1, a.pendingRevisions[to], outcome, now)
		from = to + 1
	}
	a.pendingRevisions = append(a.pendingRevisions[:0], a.pendingRevisions[n:]...)
	a.sent = max(a.sent-n, 0)
}

// refusal is what the proxy said of a resource that is held back, where it refused something.
func (st *stream) refusal(outcome distribution.Outcome) string {
	if outcome != distribution.NACKed {
		return ""
	}
	for _, t := range st.ledger.Types() {
		for _, h := range t.Held {
			return t.Type.String() + " " + h.Name + ": " + h.Message
		}
	}
	return ""
}

// owing is how many published revisions the stream has not settled, also those that it has
// yet to notice, and the oldest of them.
func (st *stream) owing() (n int, oldest model.Revision) {
	st.inbox.mu.Lock()
	defer st.inbox.mu.Unlock()
	for _, list := range [2][]model.Revision{st.inbox.published, st.account.pendingRevisions} {
		if len(list) > 0 {
			oldest = list[0]
		}
		n += len(list)
	}
	return n, oldest
}

// state is the stream as people see it.
func (st *stream) state() ProxyState {
	p := ProxyState{
		ID: st.proxy.ID, Name: st.proxy.Name, Namespace: st.proxy.Namespace, Stream: st.number, Proxy: st.proxy,
		Peer: st.transport.peer(), Connected: st.connected, Protocol: st.protocol.String(), Strategy: RouteStrategy(st.strategy.Name),
		Version: st.proxy.EnvoyVersion,
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ledger == nil {
		return p
	}
	for _, t := range st.tables {
		p.Tables = append(p.Tables, t.Name())
	}
	if st.strategy.Scopes && !st.hasScopes() {
		p.Strategy = RoutesVHDS
	}
	p.Settled = st.ledger.Settled()
	p.Owed, p.OldestOwed = st.owing()
	p.Unread = st.unread() > 0
	for _, t := range st.ledger.Types() {
		ts := TypeState{Type: t.Type.String(), Wildcard: t.Wildcard, Subscribed: t.Subscribed, Sent: t.Sent, ACKed: t.ACKed,
			InFlightSince: st.inFlight(t.Type).since, Waiting: t.Waiting, Version: t.Version}
		for _, h := range t.Held {
			ts.Held = append(ts.Held, Held{Name: h.Name, Version: h.Version, Message: h.Message})
		}
		p.Types = append(p.Types, ts)
	}
	return p
}
