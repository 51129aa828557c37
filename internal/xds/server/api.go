package server

import (
	"context"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Binder binds proxies to tables. The engine implements it.
type Binder interface {
	// Bind returns the tables of p, outbound first, at most MaxTables. It may compute the
	// configuration of a proxy group. An error ends the stream; the proxy then connects again.
	//
	// rebind replaces the tables later. The engine calls it. It does not block, and the stream
	// sends only the differences. It may be called before Bind returns, and must not be called
	// after release.
	//
	// release is called once, when the stream has ended.
	Bind(ctx context.Context, p *model.Proxy, rebind func([]*table.Table)) (tables []*table.Table, release func(), err error)

	// AddShards adds shards of the given route configurations to the tables of p, which is bound. The
	// proxy has these shards from an earlier stream. If this needs other tables, AddShards calls rebind
	// before it returns.
	AddShards(ctx context.Context, p *model.Proxy, routeConfigs []string) error
}

// RouteStrategy selects how virtual hosts reach proxies.
type RouteStrategy string

// The route strategies.
const (
	// RoutesAuto uses VHDS for Envoy sidecars on delta streams, and RDS for all others. Very large
	// route configurations are sharded as with RoutesScoped, for Envoys that support it.
	RoutesAuto RouteStrategy = "auto"
	// RoutesRDS sends whole route configurations.
	RoutesRDS RouteStrategy = "rds"
	// RoutesVHDS sends virtual hosts to every delta stream. State-of-the-world streams do not
	// support them.
	RoutesVHDS RouteStrategy = "vhds"
	// RoutesScoped is RoutesAuto, but large route configurations are sharded too, with SRDS. Envoy
	// then rebuilds only a shard if a route changes.
	RoutesScoped RouteStrategy = "scoped"
)

// Options of a Server. The zero value is useful.
type Options struct {
	RouteStrategy RouteStrategy // empty: RoutesAuto
	Senders       int           // goroutines that send published changes; 0: GOMAXPROCS
	Meter         Meter         // nil: nothing is counted
	// OnSettled receives which proxy settled what, before the Observer counts it. Like an Observer it
	// must be fast and must not call the Server. nil: not called.
	OnSettled func(distribution.Settlement)
	// DisableTracking: streams do not record which revisions are pending, and report no outcomes. It is
	// for experiments.
	DisableTracking bool
	// MaxConnectionAge is the maximum age of a connection, plus or minus 10 %. The peer then has to
	// authenticate again. 0: until its certificate expires.
	MaxConnectionAge time.Duration
	// ConnectionGrace is how long streams continue on a connection that is too old, or whose peer's
	// certificate has expired; 0: 10 s.
	ConnectionGrace time.Duration
	// Revision is that of the control plane.
	Revision string
	// Learned remembers what workloads call; nil: nothing does.
	Learned Learned
	// Methods are served beside the discovery service, by path: "/package.Service/Method".
	Methods map[string]Unary
}

// Learned remembers which clusters on demand workloads use. Its methods must not call the Server.
type Learned interface {
	// Asked reports that a proxy asks for clusters that exist and that it may use. again: it lists them after it has
	// connected again. It must be fast.
	Asked(p *model.Proxy, clusters []string, again bool)
	// Known returns what the proxy's workload is known to use. It may wait until that is known.
	Known(ctx context.Context, p *model.Proxy) Known
}

// Known is what a workload is known to use.
type Known struct {
	Clusters []string
	Hosts    []model.Host // of which all clusters may be in use
}

// Meter counts what streams send. The metrics of package changelog implement it. Like those of an
// Observer, its methods must be fast and must not call the Server.
type Meter interface {
	// Connected counts a stream of a proxy with an Istio version; delta is 1 or -1.
	Connected(istioVersion string, delta int)
	// Queued reports how long a stream with a change waited for its sender.
	Queued(time.Duration)
	// Pushed counts a response and its bytes. whole: it was the first of its type on the stream, or
	// contains every resource.
	Pushed(t resource.Type, bytes int, whole bool)
	// Took reports the time from the decision to send a response until the transport accepted it,
	// including other responses of the same write. Delivered reports the time of such a write, or
	// of a response that had to wait for others.
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

// ProxyState is the state of one stream, or of a proxy that has disconnected, for reports.
type ProxyState struct {
	ID        string         `json:"id"` // node ID
	Name      string         `json:"name"`
	Namespace string         `json:"namespace"`
	Stream    uint64         `json:"stream"` // number of the stream since the server started
	Peer      string         `json:"peer"`
	Connected time.Time      `json:"connected"`
	Protocol  string         `json:"protocol"` // "delta" or "sotw"
	Strategy  RouteStrategy  `json:"strategy"` // rds, vhds, or scoped if it has sharded route configurations
	Tables    []string       `json:"tables"`
	Settled   model.Revision `json:"settled"` // everything up to it that concerns the proxy is ACKed, or refused and held back
	// Pending is how many published revisions the proxy has not settled. OldestPending is the first
	// of them.
	Pending       int            `json:"owed,omitempty"`
	OldestPending model.Revision `json:"oldestPending,omitempty"`
	// BehindSince is when that was published, and Status is what Judge returns. The server does not set them; debug pages do.
	BehindSince time.Time   `json:"behindSince,omitzero"`
	Status      ProxyStatus `json:"status,omitempty"`
	// DisconnectedSince is when the stream ended. The other fields have what was known then. Zero: the proxy is connected.
	DisconnectedSince time.Time `json:"disconnectedSince,omitzero"`
	// Unread: the proxy does not read its responses.
	Unread   bool   `json:"unread,omitempty"`
	Version  string `json:"version,omitempty"`  // of Envoy
	Revision string `json:"revision,omitempty"` // of the control plane that serves it
	// IstioVersion and Cluster are from the proxy's metadata.
	IstioVersion string `json:"istioVersion,omitempty"`
	// Workload is the object that owns the proxy's Pod, as "deployment/web"; without a type if only its name is known.
	Workload string       `json:"workload,omitempty"`
	Cluster  string       `json:"cluster,omitempty"`
	Types    []TypeState  `json:"types"`
	Proxy    *model.Proxy `json:"-"`
	// ControlPlane has the meaning of ProxySyncStatus.ControlPlane.
	ControlPlane string `json:"controlPlane,omitempty"`
}
