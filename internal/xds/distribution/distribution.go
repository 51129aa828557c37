// Package distribution describes how far changes have come on their way to proxies.
//
// The xDS server reports what becomes of each revision to an Observer, and answers questions
// through the interface Proxies. Packages that record or explain changes depend on this
// package and not on the server: it does no I/O and knows no transport.
//
// Start reading at Proxies for questions, and at Observer for reports.
package distribution

import (
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
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

// Proxies answers questions about the proxies that are connected to this control plane, or were.
// The xDS server implements it. Answers are computed on demand, from the streams' cursors and
// the logs of the tables: the server stores nothing for each change and proxy.
//
// A proxy is named by its node ID, by "name.namespace", or by its name alone if the connected
// proxies with this name are all in one namespace.
type Proxies interface {
	// Distribution returns the status of every connected proxy for a revision, and of those that
	// disconnected without it. It waits for a publication in progress, so that the streams know
	// every revision that was reported to the Observer.
	Distribution(*Query) []ProxySyncStatus
	// Intended returns the resources of the given types that a proxy should have, ordered by
	// type, table and name. It returns false if the proxy is not connected.
	Intended(proxy string, types ...resource.Type) (*model.Proxy, []Intended, bool)
	// OnDemand returns the clusters, endpoints and shards of routes that a connected proxy asks for when a call needs them, and
	// has not asked for yet. Their status is ledger.NotSubscribed.
	OnDemand(proxy string) []Intended
	// Refusals returns the resources that connected proxies refuse in their current form, in no
	// particular order.
	Refusals() []*Refusal
	// Holders returns the connected proxies that may still send requests to one of the
	// endpoints. The endpoints must be in ascending order of their revisions.
	Holders([]GoneEndpoint) []Holder
	// ProxyAt returns the node ID of the connected proxy with an IP address.
	ProxyAt(ip string) (id string, ok bool)
	// SidecarOf returns the Sidecar that selects a connected proxy.
	SidecarOf(proxy string) (model.Key, bool)
	// Connected returns those of some node IDs that are connected.
	Connected(ids []string) []string
	// Disconnected returns the proxies that disconnected and did not connect again, in the order
	// in which they disconnected.
	Disconnected() []Disconnected
	// OldestUnanswered returns when the oldest unanswered response was sent, or the zero time if
	// every response is answered.
	OldestUnanswered() time.Time
}

// SyncState is the state of a proxy with regard to one revision.
type SyncState string

// The states.
const (
	StateACKed        SyncState = "acked"        // it accepted what the revision changed, or a newer form of it
	StateBehind       SyncState = "behind"       // some of it was not sent yet, or is not answered
	StateRefused      SyncState = "refused"      // it refused some of it, and the ledger holds that back
	StateNotConcerned SyncState = "notConcerned" // it subscribes to nothing of it
	StateDisconnected SyncState = "disconnected" // its stream ended without it, and it did not connect again
)

// Cause is why a proxy does not have a change.
type Cause string

// The causes.
const (
	CauseUnanswered   Cause = "unanswered"   // a response was sent and is not answered
	CauseUnread       Cause = "unread"       // the proxy does not read its responses
	CauseWaits        Cause = "waits"        // other resources must be sent and ACKed first
	CauseUnsent       Cause = "unsent"       // it is about to be sent
	CauseRefused      Cause = "refused"      // the proxy answered with a NACK
	CauseDisconnected Cause = "disconnected" // the stream ended
)

// Reason is a cause and its details.
type Reason struct {
	Cause Cause     `json:"cause"`
	Type  string    `json:"type,omitempty"`  // short name of the resource type: "CDS"
	Since time.Time `json:"since,omitzero"`  // of unanswered, unread, waits and disconnected
	Names []string  `json:"names,omitempty"` // refused: the resource; waits: clusters whose endpoints are missing; unanswered: clusters whose DNS names the proxy may wait for
	Text  string    `json:"text,omitempty"`  // refused: the proxy's message; waits: what it waits for
}

// ProxySyncStatus is the state of one proxy with regard to a revision, with the reasons.
type ProxySyncStatus struct {
	ID         string    `json:"id"` // node ID
	Name       string    `json:"name"`
	Namespace  string    `json:"namespace"`
	Position   SyncState `json:"position"`
	Superseded bool      `json:"superseded,omitempty"` // it has a newer form of everything that the revision changed
	Reasons    []Reason  `json:"reasons,omitempty"`
	// ControlPlane names the replica that the proxy is connected to, in answers that combine
	// several replicas. It is empty for the replica that was asked. The server does not set it.
	ControlPlane string `json:"controlPlane,omitempty"`
}

// Query asks about one revision, or about the part of one object in it.
type Query struct {
	Revision model.Revision
	// Object limits the query to resources that have the object among their origins, or had it
	// before the revision. Zero: the query is about the whole revision, as it is for objects that
	// are never recorded as origins (model.Key.IsOrigin).
	Object model.Key
	// Shared is set if the revision changed other objects too. If it did not, everything that it
	// changed is due to the object.
	Shared bool
	// Moved is set if the object was deleted, or selects other proxies than before. Then everything
	// counts in tables that were created in the revision: the proxies that lost the object moved there.
	Moved bool
	// Selects reports whether the object may concern a proxy that is disconnected and whose tables
	// are closed. nil: it may concern every proxy.
	Selects func(*model.Proxy) bool
}

// Resources returns the names of the resources of one type that the query is about in a state of a
// table, and whether a newer revision changed each of them again. The cost is in proportion to what
// the revision changed, or to the table if it was created in the revision or later.
func (q *Query) Resources(s *table.State, typ resource.Type) map[string]bool {
	all := func(*table.Touch) bool { return true }
	switch grouped := s.Table().Group().Has(q.Object); {
	case q.Object == (model.Key{}) || !q.Object.IsOrigin():
		return q.touched(s, typ, all)
	case s.Opened() == q.Revision && q.Moved:
		return q.touched(s, typ, all)
	case s.Opened() >= q.Revision:
		return q.madeFrom(s, typ, grouped)
	case grouped || !q.Shared:
		return q.touched(s, typ, all)
	}
	return q.touched(s, typ, q.by(s, typ))
}

// touched returns the resources of one type that the revision changed, as far as counts holds for them.
func (q *Query) touched(s *table.State, typ resource.Type, counts func(*table.Touch) bool) map[string]bool {
	out := map[string]bool{}
	for touch := range s.Touched(typ, q.Revision) {
		if counts(&touch) {
			out[touch.Name] = touch.Superseded
		}
	}
	return out
}

// madeFrom returns the resources of one type in a state that are made from the object: all if the
// object groups the table's proxies.
func (q *Query) madeFrom(s *table.State, typ resource.Type, grouped bool) map[string]bool {
	out := map[string]bool{}
	for e := range s.All(typ) {
		if grouped || e.MadeFrom().Has(q.Object) {
			out[e.Name] = false
		}
	}
	if typ == resource.RouteConfig { // the entry has the origins of its header only
		for e := range s.All(resource.VirtualHost) {
			if rc := table.RouteConfigOf(e.Name); e.MadeFrom().Has(q.Object) && s.Get(resource.RouteConfig, rc) != nil {
				out[rc] = false
			}
		}
	}
	return out
}

// by returns a function that reports whether the object may be why the revision changed a resource.
func (q *Query) by(s *table.State, typ resource.Type) func(*table.Touch) bool {
	parts := map[string]bool{} // route configurations with virtual hosts that changed by the object
	if typ == resource.RouteConfig {
		for touch := range s.Touched(resource.VirtualHost, q.Revision) {
			if touch.By(q.Object) {
				parts[table.RouteConfigOf(touch.Name)] = true
			}
		}
	}
	return func(touch *table.Touch) bool { return touch.By(q.Object) || parts[touch.Name] }
}

// Intended is a resource that a proxy should have, and its status on the stream.
type Intended struct {
	Type    resource.Type
	Entry   *table.Entry
	State   *table.State          // of the table that has the entry
	Status  ledger.ResourceStatus // ledger.NotSubscribed only from OnDemand
	Message string                // the proxy's, if it refused the resource
}

// Disconnected is a proxy whose stream ended and that did not connect again. If its process
// runs, it uses what it has.
type Disconnected struct {
	ID        string         `json:"id"` // node ID
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	IPs       []string       `json:"ips,omitempty"`
	Since     time.Time      `json:"since"`
	Settled   model.Revision `json:"settled"` // the proxy had everything up to this revision
}

// GoneEndpoint is an address that must not receive requests for some hosts since a revision.
type GoneEndpoint struct {
	Revision model.Revision
	Since    time.Time
	Hosts    []string
	Address  string
}

// Holder is a connected proxy that may still have an endpoint that is gone.
type Holder struct {
	ID        string // node ID
	Name      string
	Namespace string
	Cluster   string
	Endpoint  *GoneEndpoint
	Reasons   []Reason
}

// Refusal is a resource that connected proxies refuse in its current form.
type Refusal struct {
	Type    resource.Type
	Name    string // empty: the proxies' messages do not name a resource of the response
	Version string // of the resource
	Message string // of several, the first in alphabetical order
	Proxies int    // how many refuse it
	// Since is the newest revision of which one of the proxies may have the resource; 0: none has it.
	Since model.Revision
	// About is what the messages may be about: the resource, or those of its parts that were
	// new to the proxies.
	About []Part
}

// Part is a resource of a table. Its entry knows the objects that it is made from.
type Part struct {
	Type  resource.Type
	Entry *table.Entry
	Group *model.Origins // the objects by which the table's proxies are grouped
	Proxy *model.Proxy   // one that refuses it; nil: unknown
}
