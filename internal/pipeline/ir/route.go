package ir

import (
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// RouteConfig is a route configuration without its virtual hosts.
type RouteConfig struct {
	Made

	Name string         // in Envoy, for example "80", or "80~256~3" for a shard of it
	Of   RouteConfigKey // the whole route configuration
	// Inbound route configurations are part of their listener, not served by RDS.
	Inbound bool
	// Shard: it is one of those that a larger one is split into, and a scope leads to it.
	Shard bool
}

// Scope leads requests with a key to a route configuration. All three have one name.
type Scope struct {
	Made

	Name string
}

// VirtualHost is the unit of routing: one host on one route configuration.
type VirtualHost struct {
	Made

	Added *Patch // where an EnvoyFilter adds it: then nothing but names, Domains and HidesPeer counts

	RouteConfig string         // by its name in Envoy
	Of          RouteConfigKey // the whole route configuration
	Host        model.Host     // whose requests it takes; empty: those for unknown hosts, or what an EnvoyFilter adds
	// Name is unique within the route configuration ("reviews.shop.svc.cluster.local:80").
	Name    string
	Domains []string // unique within the route configuration; most telling first
	Routes  []Route  // in order of precedence
	// IncludeAttempts sets x-envoy-attempt-count (Istio does).
	IncludeAttempts bool
	// ForwardHost sets x-forwarded-host where a route gives requests another host.
	ForwardHost bool
	// HidesPeer takes the header away that says who calls: not all destinations are of the mesh, or
	// whoever calls a gateway has said it.
	HidesPeer bool
	// RequireTLS redirects requests in plain text to https.
	RequireTLS bool
}

// ResourceName is the name of the virtual host as a VHDS resource. VirtualHost.name
// in Envoy must be the same, or removals are ignored.
func (v *VirtualHost) ResourceName() string { return v.RouteConfig + "/" + v.Name }

// Route is one rule. Exactly one of Backends, Redirect and DirectResponse is set.
type Route struct {
	Name           string // of the rule; "default" where the service itself is the rule
	Match          *Match // nil: everything
	Backends       []Backend
	Redirect       *model.Redirect
	DirectResponse *model.DirectResponse

	Rewrite *model.Rewrite
	Timeout time.Duration // 0: none
	Retry   *model.Retry  // nil: no retries
	Fault   *model.Fault
	Mirrors []Mirror
	CORS    *model.CORS
	Headers model.Headers
	Hash    []model.HashPolicy // of the backends' load balancers, without duplicates

	StatPrefix string
	// Operation names the route in traces ("reviews.shop.svc.cluster.local:80/*").
	Operation string
	Origin    string // the VirtualService, "namespace/name"; empty: none
	// OriginKind: Origin is a route of the Gateway API, of this kind.
	OriginKind model.Kind
}

// Match is one HTTPMatch of a route without what derive has decided (port, sources, gateways).
type Match struct {
	Name           string
	URI            *model.StringMatch
	IgnoreURICase  bool
	Scheme         *model.StringMatch
	Method         *model.StringMatch
	Authority      *model.StringMatch
	Headers        []model.HeaderMatch
	WithoutHeaders []model.HeaderMatch
	QueryParams    []model.HeaderMatch
}

// Backend is a weighted cluster. All weights of a route are relative.
type Backend struct {
	Cluster string
	Host    model.Host // of the cluster's service; empty: it has none
	Weight  uint32
	Headers model.Headers
}

// Mirror copies requests to a cluster.
type Mirror struct {
	Cluster string
	Host    model.Host // of the cluster's service
	Percent float64
}
