package ledger

import (
	"errors"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Ledger is the state of one stream. It is not safe for concurrent use.
//
// Each concern is a separate struct: ordering, prefetch of endpoints, scopes, and virtual hosts. They
// share streamState, which has the subscriptions and the cursors.
type Ledger struct {
	streamState
	prefetch endpointPrefetch
	ordering ordering
	scopes   scopes
	hosts    virtualHosts

	nonce   uint64 // of the newest response of any type
	settled model.Revision
}

// ErrBehind is returned if the tables have forgotten removals that the stream was not sent. The
// proxy must connect again and list what it has.
var ErrBehind = errors.New("too far behind: connect again")

// New returns the ledger of a stream that is bound to the tables of states, at most MaxTables.
func New(protocol Protocol, strategy *Strategy, pool *names.Pool, states []*table.State) *Ledger {
	if protocol == Sotw {
		strategy = WholeRoutes
	}
	l := &Ledger{streamState: streamState{protocol: protocol, strategy: strategy, pool: pool, states: padded(states)}}
	l.connect()
	l.partial = protocol == Delta && l.states[0].Table().OnDemand()
	for k, t := range kindTypes {
		l.watches[k].typ = t
	}
	l.watches[rds].typ = strategy.Routes
	return l
}

// connect points the concerns to the state that they share.
func (l *Ledger) connect() {
	st := &l.streamState
	l.prefetch.streamState, l.ordering.streamState, l.scopes.streamState, l.hosts.streamState = st, st, st, st
}

// Update sets the newest states of the tables. If they belong to other tables than before, it binds
// the stream to those.
func (l *Ledger) Update(states []*table.State) {
	next := padded(states)
	for i := range next {
		if next[i].Table() != l.states[i].Table() {
			l.rebind(next)
			return
		}
	}
	for i := range next {
		l.carrySent(i, l.states[i], next[i])
	}
	l.states = next
}

// Published records that a revision was published to the stream. It precedes the Update with its states.
func (l *Ledger) Published(rev model.Revision) { l.published = max(l.published, rev) }

// StopWaiting ends all waits. It is for proxies that never request the endpoints of their clusters,
// whose listeners would wait forever, and for those that connected again and have no routes to list.
func (l *Ledger) StopWaiting() {
	l.reconnecting = false
	l.ordering.stopWaiting()
	l.scopes.stopWaiting()
}

// Waiting reports whether listeners or routes wait for clusters or endpoints, or removals wait for
// the proxy to list its routes. It returns false while the proxy takes scopes.
func (l *Ledger) Waiting() bool {
	if l.scopes.inFlight() {
		return false
	}
	if l.reconnecting || l.ordering.blocks() || l.scopes.used() && l.removesRoutes() && l.scopes.awaitRoutes() {
		return true
	}
	for k := lds; k < kinds; k++ {
		if l.watches[k].on && l.heldUp(k) {
			return true
		}
	}
	return false
}

// heldUp reports whether a type has something to send that must wait.
func (l *Ledger) heldUp(k kind) bool {
	w := &l.watches[k]
	return w.flight == nil && l.limit(k) != always && (w.firstPending || !l.upToDate(w) || !w.idle())
}

// Request is a parsed request, delta or state-of-the-world. Its slices point into the
// request's buffer and are not kept.
type Request struct {
	TypeURL []byte
	Nonce   []byte // of the response that it answers; empty: none
	Error   *Error // it refuses that response

	// Delta.
	Subscribe, Unsubscribe [][]byte
	Initial                []NameVersion

	// State-of-the-world. version_info is not used: after a NACK a proxy may have more or
	// less than the version that it accepted last.
	Names [][]byte
}

// NameVersion is an entry of initial_resource_versions.
type NameVersion struct{ Name, Version []byte }

// Error is why a proxy refused a response.
type Error struct {
	Code    int32
	Message string
}

// Protocol is a variant of xDS.
type Protocol uint8

// The protocols.
const (
	Delta Protocol = iota
	Sotw
)

// String is "delta" or "sotw".
func (p Protocol) String() string { return [...]string{"delta", "sotw"}[p] }

// Strategy is how routes reach a proxy.
type Strategy struct {
	Name         string
	Routes       resource.Type // the column that answers RDS
	VirtualHosts bool          // VHDS
	Scopes       bool          // SRDS, for listeners that use it
}

// The strategies.
var (
	WholeRoutes  = &Strategy{Name: "rds", Routes: resource.RouteConfig}
	VirtualHosts = &Strategy{Name: "vhds", Routes: resource.VHDSRouteConfig, VirtualHosts: true}
	ScopedRoutes = &Strategy{Name: "scoped", Routes: resource.VHDSRouteConfig, VirtualHosts: true, Scopes: true}
)

// kind is an index of a stream's watches: the types in the order of additions.
type kind uint8

const (
	cds kind = iota
	eds
	sds
	srds
	lds
	rds
	vhds
	nds
	ecds
	bds
	kinds
)

// kindTypes are the types of the kinds; the strategy may replace that of rds.
var kindTypes = [kinds]resource.Type{
	resource.Cluster, resource.Endpoints, resource.Secret, resource.Scope, resource.Listener, resource.RouteConfig,
	resource.VirtualHost, resource.NameTable, resource.Extension, resource.Bootstrap,
}

// kindURLs are the type URLs of kinds, and kindsOf the kinds of types.
var kindURLs, kindsOf = func() (urls [kinds]string, of [resource.NumTypes]kind) {
	for k, t := range kindTypes {
		urls[k], of[t] = t.URL(), kind(k) //nolint:gosec // there are few
	}
	of[resource.VHDSRouteConfig] = rds
	return urls, of
}()
