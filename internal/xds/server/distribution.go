package server

import (
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Who has a change is found when somebody asks, from the streams' cursors and the tables'
// logs. Nothing is kept for each change and proxy.

// SyncState is where a proxy stands towards one revision.
type SyncState string

// The positions.
const (
	// PositionACKed: it has accepted what the revision changed, or what came after it.
	PositionACKed SyncState = "acked"
	// PositionBehind: some of it was not sent yet, or not answered.
	PositionBehind SyncState = "behind"
	// PositionRefused: the proxy refused some of it, and that is held back.
	PositionRefused SyncState = "refused"
	// PositionNotConcerned: it subscribes to nothing of it.
	PositionNotConcerned SyncState = "notConcerned"
	// PositionDisconnected: its stream ended before it had it, and it has not come back.
	PositionDisconnected SyncState = "disconnected"
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

// ProxySyncStatus is one proxy's position and why it is there.
type ProxySyncStatus struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	Namespace  string    `json:"namespace"`
	Position   SyncState `json:"position"`
	Superseded bool      `json:"superseded,omitempty"` // it has a newer form of what the revision changed
	Reasons    []Reason  `json:"reasons,omitempty"`
	// ControlPlane is whose it is, in answers about several; empty: of the one that was asked.
	// The server does not know: who joins answers fills it in.
	ControlPlane string `json:"controlPlane,omitempty"`
}

// Query is about one revision, or about one object's part in it.
type Query struct {
	Revision model.Revision
	Object   model.Key // zero: the question is about the revision
	// Related tells whether a resource is made of the object; nil: nobody knows. It is
	// asked about tables that are newer than the revision, where nothing else tells.
	Related func(resource.Type, *table.Entry) bool
	// Concerns tells whether the object may shape what a proxy has of a type; nil: it may be any proxy and type.
	Concerns func(*model.Proxy, resource.Type) bool
	// Shared: the revision changed other objects too, whose refusals do not count.
	Shared bool
}

// Distribution tells where each proxy stands: all that are connected, and those that left
// without the revision. It waits for an announcement under way, so that a revision that
// the Observer was told of is known to the streams.
func (s *Server) Distribution(q *Query) []ProxySyncStatus {
	s.publishing.Lock()
	s.publishing.Unlock() //nolint:staticcheck // SA2001: the wait is what it is for
	sv := distributionQuery{Query: q, tables: map[*table.Table]*touched{}}
	var out []ProxySyncStatus
	for _, st := range s.streams.all() {
		if w, ok := st.syncStatus(&sv); ok {
			out = append(out, w)
		}
	}
	return append(out, sv.without(s.Disconnected())...)
}
