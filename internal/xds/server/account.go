package server

import (
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// maxPending bounds the published revisions that a stream has not settled. If there are more, the
// oldest are reported as distribution.Gone.
const maxPending = 1024

// account has the published revisions that a stream has not settled: exactly those that the stream
// was counted for. The stream's lock guards the fields.
type account struct {
	*stream
	pendingRevisions []model.Revision  // ascending
	sent             int               // how many of pendingRevisions are reported as sent
	newest           model.Revision    // of the tables when the last response was sent
	refused          model.Revision    // value of newest when the last response was refused
	before           model.Revision    // what the proxy had when its last stream ended; 0: unknown
	room             [1]model.Revision // pendingRevisions begins in it, and is seldom longer
}

// outcome returns how a settled revision ended. It compares revisions, as a stream may settle one
// before it is published.
func (a *account) outcome(rev model.Revision) distribution.Outcome {
	switch {
	case rev <= a.refused:
		return distribution.NACKed
	case rev <= a.newest:
		return distribution.ACKed
	}
	return distribution.NotConcerned
}

// settle reports the outcome of pending revisions. The stream's lock is held.
func (a *account) settle(now time.Time) {
	rev, refused := a.ledger.Settle()
	if refused {
		a.refused = a.newest
	}
	if len(a.pendingRevisions) == 0 {
		return
	}
	a.reportSent(now)
	for len(a.pendingRevisions) > 0 && a.pendingRevisions[0] <= rev {
		outcome, n := a.outcome(a.pendingRevisions[0]), 1
		for n < len(a.pendingRevisions) && a.pendingRevisions[n] <= rev && a.outcome(a.pendingRevisions[n]) == outcome {
			n++
		}
		a.report(n, outcome, now)
	}
	if over := len(a.pendingRevisions) - maxPending; over > 0 {
		a.report(over, distribution.Gone, now)
	}
}

func (a *account) reportSent(now time.Time) {
	if a.sent == len(a.pendingRevisions) || a.newest < a.pendingRevisions[a.sent] {
		return
	}
	sent := min(a.newest, a.ledger.Sent())
	for a.sent < len(a.pendingRevisions) && a.pendingRevisions[a.sent] <= sent {
		a.server.obs.Sent(a.pendingRevisions[a.sent], now)
		a.sent++
	}
}

// report reports the outcome of the oldest n pending revisions, in runs without gaps.
func (a *account) report(n int, outcome distribution.Outcome, now time.Time) {
	for from := 0; from < n; {
		to := from
		for to+1 < n && a.pendingRevisions[to+1] == a.pendingRevisions[to]+1 {
			to++
		}
		if witness := a.server.opts.Witness; witness != nil {
			witness(distribution.Settlement{Proxy: a.proxy, From: a.pendingRevisions[from] - 1, To: a.pendingRevisions[to], Outcome: outcome, At: now, Text: a.refusal(outcome)})
		}
		a.server.obs.Settled(a.pendingRevisions[from]-1, a.pendingRevisions[to], outcome, now)
		from = to + 1
	}
	a.pendingRevisions = append(a.pendingRevisions[:0], a.pendingRevisions[n:]...)
	a.sent = max(a.sent-n, 0)
}

// refusal returns the proxy's message about a resource that is held back, if the outcome is a NACK.
func (a *account) refusal(outcome distribution.Outcome) string {
	if outcome != distribution.NACKed {
		return ""
	}
	for _, t := range a.ledger.Types() {
		for _, h := range t.Held {
			return t.Type.String() + " " + h.Name + ": " + h.Message
		}
	}
	return ""
}

// pending returns how many published revisions the stream has not settled, including those that it
// has not read, and the oldest of them.
func (a *account) pending() (n int, oldest model.Revision) {
	a.inbox.mu.Lock()
	defer a.inbox.mu.Unlock()
	for _, list := range [2][]model.Revision{a.inbox.published, a.pendingRevisions} {
		if len(list) > 0 {
			oldest = list[0]
		}
		n += len(list)
	}
	return n, oldest
}

// isPending reports whether the stream was counted for a revision and has not settled it.
func (a *account) isPending(rev model.Revision) bool {
	_, found := slices.BinarySearch(a.pendingRevisions, rev)
	return found
}

// isPublished reports whether a revision was published to the stream, and the stream has not read
// it.
func (a *account) isPublished(rev model.Revision) bool {
	a.inbox.mu.Lock()
	defer a.inbox.mu.Unlock()
	return slices.Contains(a.inbox.published, rev)
}
