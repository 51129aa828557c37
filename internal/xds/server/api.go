// Package server is all xDS stream I/O: the aggregated discovery service, delta and
// state-of-the-world, on gRPC: on grpc-go, or on package http2.
//
// What may go to a stream is decided by ledger, which is pure; this package feeds it
// requests and new states of tables, assembles what it answers from shared buffers, and
// sends it. Nothing here costs in proportion to the mesh: a change wakes the streams
// that are bound to the touched tables, and each sends what came after its cursor.
package server

import (
	"context"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Binder gives a proxy its tables. The engine implements it.
type Binder interface {
	// Bind gives the tables that p is to see, outbound first; at most MaxTables. It may
	// build a scope. An error refuses the stream; the proxy will connect again.
	//
	// rebind replaces the tables later on. It is called by the engine and does not
	// block; the stream sends the differences only. It may be called before Bind has
	// returned, and must not be called after release has.
	//
	// release is called once, when the stream has ended.
	Bind(ctx context.Context, p *model.Proxy, rebind func([]*table.Table)) (tables []*table.Table, release func(), err error)

	// Keep has the tables of p, which is bound, have some route configurations in buckets, as the
	// proxy has them so from a stream before. Where these are other tables, rebind has been called
	// when it returns.
	Keep(ctx context.Context, p *model.Proxy, routeConfigs []string) error
}

// RouteStrategy says how virtual hosts reach proxies.
type RouteStrategy string

// The route strategies.
const (
	// RoutesAuto is VHDS for Envoy sidecars on delta streams, RDS for all others. Very large route
	// configurations reach Envoys that can have them so as with RoutesScoped.
	RoutesAuto RouteStrategy = "auto"
	// RoutesRDS sends whole route configurations.
	RoutesRDS RouteStrategy = "rds"
	// RoutesVHDS sends virtual hosts to every delta stream. State-of-the-world streams
	// cannot have them.
	RoutesVHDS RouteStrategy = "vhds"
	// RoutesScoped is auto, but that large route configurations, too, are in buckets, by SRDS: a
	// changed route costs Envoy a bucket.
	RoutesScoped RouteStrategy = "scoped"
)

// Options are what a Server can be told. The zero value is good.
type Options struct {
	RouteStrategy RouteStrategy // empty: RoutesAuto
	Senders       int           // goroutines that bring published changes to streams; 0: GOMAXPROCS
	Meter         Meter         // nil: nobody counts
	// Witness is told who settled what, right before the Observer is told that somebody did;
	// like an Observer it must be quick and must not call the Server. nil: nobody asks.
	Witness func(distribution.Settlement)
	// Unfollowed: streams do not keep which revisions they owe, and nobody is told of what
	// becomes of them. It is for experiments.
	Unfollowed bool
	// MaxConnectionAge is how old connections get, a tenth more or less: whoever they are from shows again who
	// they are. 0: until their certificates expire.
	MaxConnectionAge time.Duration
	// ConnectionGrace is what is under way on a connection that is old, or whose peer's certificate has
	// expired, has left; 0: 10 s.
	ConnectionGrace time.Duration
	// Methods are served beside the discovery service, by path: "/package.Service/Method".
	Methods map[string]Unary
}

// Meter counts what goes over streams. telemetry's metrics implement it. Like an
// Observer's, its methods must be quick and must not call the Server.
type Meter interface {
	// Connected counts a stream of a proxy of that Istio version; delta is 1 or -1.
	Connected(istioVersion string, delta int)
	// Queued tells how long a stream with news waited for its turn.
	Queued(time.Duration)
	// Pushed counts a response of so many bytes; whole: it was the first one of its type
	// on the stream, or must have everything.
	Pushed(t resource.Type, bytes int, whole bool)
	// Took tells how long a response took from the decision to send it until the transport had it, with those
	// that went in one write with it; and Delivered how long such a write took, or a response that had to wait for others.
	Took(t resource.Type, d time.Duration)
	Delivered(time.Duration)
	// Rejected counts a NACK.
	Rejected(t resource.Type)
}

// unmetered counts nothing.
type unmetered struct{}

func (unmetered) Connected(string, int)             {}
func (unmetered) Queued(time.Duration)              {}
func (unmetered) Pushed(resource.Type, int, bool)   {}
func (unmetered) Took(resource.Type, time.Duration) {}
func (unmetered) Delivered(time.Duration)           {}
func (unmetered) Rejected(resource.Type)            {}

// ProxyState is what is known of one stream, for people.
type ProxyState struct {
	ID        string         `json:"id"` // Envoy's node id
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Stream    uint64         `json:"stream"` // number of the stream since the server's start
	Peer      string         `json:"peer"`
	Connected time.Time      `json:"connected"`
	Protocol  string         `json:"protocol"` // "delta" or "sotw"
	Strategy  RouteStrategy  `json:"strategy"` // rds, vhds, or scoped where it has route configurations in buckets
	Tables    []string       `json:"tables"`
	Settled   model.Revision `json:"settled"` // everything up to it that concerns the proxy is ACKed, or NACKed and held back
	// Owed is how many published revisions the proxy is behind, of which OldestOwed is the first.
	Owed       int            `json:"owed,omitempty"`
	OldestOwed model.Revision `json:"oldestOwed,omitempty"`
	// BehindSince is when that was published. The server does not know: debug pages fill it in.
	BehindSince time.Time `json:"behindSince,omitzero"`
	// Unread: it does not read what it is sent.
	Unread  bool         `json:"unread,omitempty"`
	Version string       `json:"version,omitempty"` // of the proxy: Envoy's
	Types   []TypeState  `json:"types"`
	Proxy   *model.Proxy `json:"-"`
	// ControlPlane is as in ProxySyncStatus.
	ControlPlane string `json:"controlPlane,omitempty"`
}

// TypeState is the state of one type of resources on a stream.
type TypeState struct {
	Type          string         `json:"type"` // "CDS"
	Wildcard      bool           `json:"wildcard"`
	Subscribed    int            `json:"subscribed"` // named resources
	Sent          model.Revision `json:"sent"`
	ACKed         model.Revision `json:"acked"`
	InFlightSince time.Time      `json:"inFlightSince,omitzero"`
	Waiting       string         `json:"waiting,omitempty"` // for what, where something could be sent but must not yet
	Version       string         `json:"version,omitempty"` // state-of-the-world: of the last response
	Held          []Held         `json:"held,omitempty"`
}

// Held is a resource that a proxy refused, and that is not sent again until it differs.
type Held struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Message string `json:"message"` // the proxy's
}
