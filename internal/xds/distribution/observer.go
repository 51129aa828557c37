package distribution

import (
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// Outcome is how a revision ended on a stream that was bound to a table that it changed.
type Outcome uint8

// The outcomes.
const (
	ACKed        Outcome = iota // everything that changed was sent and accepted
	NotConcerned                // the proxy subscribes to nothing that changed
	NACKed                      // the proxy refused some of it, and the ledger holds that back
	Gone                        // the stream ended first, or is too far behind to be followed
)

// String returns the outcome for reports: "not concerned".
func (o Outcome) String() string {
	return [...]string{"ACKed", "not concerned", "NACKed", "gone"}[o]
}

// Observer records what becomes of each revision. The change log implements it. The server
// calls its methods from many goroutines, while it holds the lock of a stream: they must be
// fast and must not call the server.
//
// For each revision the server calls Published first, and then Settled exactly once for each
// of the streams that it counted.
type Observer interface {
	// Published reports that rev is in the tables, and how many streams are bound to tables that
	// it changed.
	Published(rev model.Revision, concerned int, at time.Time)
	// Sent reports that a stream was sent everything that rev changed for it. The server calls it
	// at most once for each stream, after Published.
	Sent(rev model.Revision, at time.Time)
	// Settled reports that one stream is done with every published revision in (from,to]. The
	// server counted each of them for this stream: ranges do not span other revisions.
	Settled(from, to model.Revision, outcome Outcome, at time.Time)
}

// Settlement reports how the published revisions in (From,To] ended for one stream, like
// Observer.Settled.
type Settlement struct {
	Proxy    *model.Proxy
	From, To model.Revision
	Outcome  Outcome
	At       time.Time
	Text     string // with NACKed: the type and name of a refused resource, and the proxy's message
}
