package ir

import (
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
)

// RouteConfig is a route configuration without its virtual hosts.
type RouteConfig struct {
	Made

	Name string         // in Envoy, for example "80", or "80~256~3" for a shard of it
	Of   RouteConfigKey // the whole route configuration
	// Inbound route configurations are part of their listener. RDS does not serve them.
	Inbound bool
	// Shard: it is a part of a larger one, and a scope leads to it.
	Shard bool
}

// Scope leads requests with a key to a route configuration. The scope, the key and the route configuration share a name.
type Scope struct {
	Made

	Name string
	// OnDemand: Envoy asks for its route configuration when a request first needs it.
	OnDemand bool
}

// VirtualHost is one host in one route configuration.
type VirtualHost struct {
	Made

	Added *Patch // if an EnvoyFilter adds it: then only names, Domains and RemovesPeerHeader count

	RouteConfig string         // by its name in Envoy
	Of          RouteConfigKey // the whole route configuration
	Host        model.Host     // whose requests it takes; empty: those for unknown hosts, or what an EnvoyFilter adds
	// Name is unique within the route configuration ("reviews.shop.svc.cluster.local:80").
	Name    string
	Domains []string // unique in the route configuration; most specific first
	// Absolute adds the names of the host with a final dot, as in Istio for services.
	Absolute bool
	Routes   []Route // in order of precedence
	// IncludeAttempts sets x-envoy-attempt-count (Istio does).
	IncludeAttempts bool
	// ForwardHost sets x-forwarded-host if a route gives requests another host.
	ForwardHost bool
	// RemovesPeerHeader removes the header that names the caller: not all destinations belong to the mesh, or the header comes from a
	// client of a gateway.
	RemovesPeerHeader bool
	// RequireTLS redirects requests in plain text to https.
	RequireTLS bool
}

// WithAbsolute are the domains, with the absolute names that belong to them.
func (v *VirtualHost) WithAbsolute() []string {
	if !v.Absolute {
		return v.Domains
	}
	out := make([]string, 0, len(v.Domains)+2)
	for _, d := range v.Domains {
		out = append(out, d)
		if d == string(v.Host) || d == "*."+string(v.Host) {
			out = append(out, d+".")
		}
	}
	return out
}

// ResourceName is the name of the virtual host as a VHDS resource. VirtualHost.name
// in Envoy must be the same, or removals are ignored.
func (v *VirtualHost) ResourceName() string { return resourcename.VirtualHost(v.RouteConfig, v.Name) }

// Route is one rule. Exactly one of Backends, Redirect and DirectResponse is set.
type Route struct {
	Name           string // of the rule; "default" if the service itself is the rule
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
	Origin    model.Key // the VirtualService or route of the Gateway API; zero: none
}

// Match is one HTTPMatch of a route without the parts that derive decides (port, sources, gateways).
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
