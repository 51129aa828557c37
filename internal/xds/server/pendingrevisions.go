package server

import (
	"slices"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// maxPending bounds the published revisions that a stream has not settled. If there are more, the
// oldest are reported as distribution.Gone.
const maxPending = 1024

// pendingRevisions are the published revisions that a stream has not settled: exactly those that the
// stream was counted for. The stream's lock guards the fields.
type pendingRevisions struct {
	*stream
	revisions []model.Revision  // ascending
	sent      int               // how many of revisions are reported as sent
	newest    model.Revision    // of the tables when the last response was sent
	refused   ledger.Span       // what NACKs may be about that concern unsettled revisions
	before    model.Revision    // what the proxy had when its last stream ended; 0: unknown
	room      [1]model.Revision // revisions begins in it, and is seldom longer
}

// settle reports the outcome of the revisions that the ledger has settled. The stream's lock is held.
func (p *pendingRevisions) settle(now time.Time) {
	rev, refused := p.ledger.Settle()
	p.noteRefused(refused)
	if len(p.revisions) == 0 {
		return
	}
	asked := p.askedState()
	rev = min(rev, asked.settledUpTo())
	p.reportSent(now, &asked)
	for len(p.revisions) > 0 && p.revisions[0] <= rev {
		outcome, n := p.outcome(p.revisions[0], &asked), 1
		for n < len(p.revisions) && p.revisions[n] <= rev && p.outcome(p.revisions[n], &asked) == outcome {
			n++
		}
		p.report(n, outcome, now)
	}
	if over := len(p.revisions) - maxPending; over > 0 {
		p.report(over, distribution.Gone, now)
	}
}

// noteRefused records what NACKs may be about. Older ones no longer count once all that they may be about is settled. A
// revision may be published after it is refused, but revisions are published in order.
func (p *pendingRevisions) noteRefused(by ledger.Span) {
	if by == (ledger.Span{}) {
		return
	}
	if n := len(p.revisions); n > 0 && p.refused.Upto < p.revisions[0] {
		p.refused = ledger.Span{}
	}
	by.Upto = min(by.Upto, p.newest)
	p.refused = p.refused.Joined(by)
}

// outcome returns how a settled revision ended, for this stream. It compares revisions, as a stream may
// settle one before it is published.
func (p *pendingRevisions) outcome(rev model.Revision, asked *askedState) distribution.Outcome {
	switch {
	case p.refused.Has(rev), rev <= asked.refused:
		return distribution.NACKed
	case rev <= max(p.newest, asked.newest):
		return distribution.ACKed
	}
	return distribution.NotConcerned
}

func (p *pendingRevisions) reportSent(now time.Time, asked *askedState) {
	newest := max(p.newest, asked.newest)
	if p.sent == len(p.revisions) || newest < p.revisions[p.sent] {
		return
	}
	sent := min(newest, p.ledger.Sent())
	for p.sent < len(p.revisions) && p.revisions[p.sent] <= sent {
		p.server.obs.Sent(p.revisions[p.sent], now)
		p.sent++
	}
}

// report reports the outcome of the oldest n pending revisions, in runs without gaps.
func (p *pendingRevisions) report(n int, outcome distribution.Outcome, now time.Time) {
	for from := 0; from < n; {
		to := from
		for to+1 < n && p.revisions[to+1] == p.revisions[to]+1 {
			to++
		}
		if onSettled := p.server.opts.OnSettled; onSettled != nil {
			onSettled(distribution.Settlement{Proxy: p.proxy, From: p.revisions[from] - 1, To: p.revisions[to], Outcome: outcome, At: now, Text: p.refusal(outcome)})
		}
		p.server.obs.Settled(p.revisions[from]-1, p.revisions[to], outcome, now)
		from = to + 1
	}
	p.revisions = append(p.revisions[:0], p.revisions[n:]...)
	p.sent = max(p.sent-n, 0)
}

// refusal returns the proxy's message about a resource that the newest NACK refused and that is held
// back, if the outcome is a NACK. Others may be held since an older revision.
func (p *pendingRevisions) refusal(outcome distribution.Outcome) string {
	if outcome != distribution.NACKed {
		return ""
	}
	text, newest := "", uint64(0)
	for _, t := range p.ledger.Types() {
		for _, h := range t.Held {
			if h.NACK() > newest {
				newest, text = h.NACK(), t.Type.String()+" "+h.Name+": "+h.Message
			}
		}
	}
	return text
}

// count returns how many published revisions the stream has not settled, including those that it
// has not read, and the oldest of them.
func (p *pendingRevisions) count() (n int, oldest model.Revision) {
	p.inbox.mu.Lock()
	defer p.inbox.mu.Unlock()
	for _, list := range [2][]model.Revision{p.inbox.published, p.revisions} {
		if len(list) > 0 {
			oldest = list[0]
		}
		n += len(list)
	}
	return n, oldest
}

// has reports whether the stream was counted for a revision and has not settled it.
func (p *pendingRevisions) has(rev model.Revision) bool {
	_, found := slices.BinarySearch(p.revisions, rev)
	return found
}

// isPublished reports whether a revision was published to the stream, and the stream has not read
// it.
func (p *pendingRevisions) isPublished(rev model.Revision) bool {
	p.inbox.mu.Lock()
	defer p.inbox.mu.Unlock()
	return slices.Contains(p.inbox.published, rev)
}
