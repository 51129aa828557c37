// Package resource knows the kinds of xDS resources and how one is encoded.
//
// Differences between resource types are rows of one table (Types); nothing else in
// the control plane switches on a type URL.
package resource

// Type is an index into Types: one column of a table of resources.
type Type uint8

// The types, in the order in which additions are sent (make before break). RouteConfig
// and VHDSRouteConfig are two strategies for one type URL: whole route
// configurations, and ones whose virtual hosts come by VHDS. A
// Scope has the name of the route configuration that it leads to.
const (
	Cluster Type = iota
	Endpoints
	Secret
	Scope
	Listener
	RouteConfig
	RouteConfigShell
	VirtualHost
	NameTable
	Extension
	Bootstrap
	NumTypes
)

// Info is a row: what distinguishes a type of resources from the others.
type Info struct {
	Type  Type
	Short string // "CDS"
	URL   string
	// Wildcard types are pushed whole to a stream that names nothing.
	Wildcard bool
	// FullState types must hold everything in each state-of-the-world response:
	// what is missing has been removed (xDS: CDS and LDS only).
	FullState bool
	// Needs are the types whose additions must be acknowledged before this type's
	// updates that may refer to them are sent.
	Needs []Type
	// HeldBy are the types whose updates must be acknowledged before this type's
	// removals are sent: they may still refer to what is removed.
	HeldBy []Type
}

const prefix = "type.googleapis.com/"

// Type URLs.
const (
	ClusterURL     = prefix + "envoy.config.cluster.v3.Cluster"
	EndpointsURL   = prefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	SecretURL      = prefix + "envoy.extensions.transport_sockets.tls.v3.Secret"
	ScopeURL       = prefix + "envoy.config.route.v3.ScopedRouteConfiguration"
	ListenerURL    = prefix + "envoy.config.listener.v3.Listener"
	RouteConfigURL = prefix + "envoy.config.route.v3.RouteConfiguration"
	NameTableURL   = prefix + "istio.networking.nds.v1.NameTable"         // one a host; agents ask for them, not Envoys
	ExtensionURL   = prefix + "envoy.config.core.v3.TypedExtensionConfig" // likewise: plugins whose modules agents fetch
	BootstrapURL   = prefix + "envoy.config.bootstrap.v3.Bootstrap"       // likewise: what EnvoyFilters change of Envoy's bootstrap
	VirtualHostURL = prefix + "envoy.config.route.v3.VirtualHost"
)

// Types is the table, indexed by Type.
var Types = [NumTypes]Info{
	Cluster: {Type: Cluster, Short: "CDS", URL: ClusterURL, Wildcard: true, FullState: true,
		HeldBy: []Type{Listener, RouteConfig, RouteConfigShell, VirtualHost}},
	Endpoints: {Type: Endpoints, Short: "EDS", URL: EndpointsURL},
	// A cluster is ACKed when its secrets are there, so that they wait for nothing; nor do
	// removals: Envoy keeps what it has, and waits no longer for what it has not.
	Secret:           {Type: Secret, Short: "SDS", URL: SecretURL},
	Scope:            {Type: Scope, Short: "SRDS", URL: ScopeURL, Wildcard: true, HeldBy: []Type{Listener}},
	Listener:         {Type: Listener, Short: "LDS", URL: ListenerURL, Wildcard: true, FullState: true, Needs: []Type{Cluster, Endpoints}},
	RouteConfig:      {Type: RouteConfig, Short: "RDS", URL: RouteConfigURL, Needs: []Type{Cluster, Endpoints}},
	RouteConfigShell: {Type: RouteConfigShell, Short: "RDS", URL: RouteConfigURL, Needs: []Type{Cluster, Endpoints}},
	NameTable:        {Type: NameTable, Short: "NDS", URL: NameTableURL, Wildcard: true},
	Extension:        {Type: Extension, Short: "ECDS", URL: ExtensionURL, Wildcard: true},
	Bootstrap:        {Type: Bootstrap, Short: "BDS", URL: BootstrapURL, Wildcard: true},
	VirtualHost:      {Type: VirtualHost, Short: "VHDS", URL: VirtualHostURL, Wildcard: true, Needs: []Type{Cluster, Endpoints}},
}

// String is the short name: "CDS".
func (t Type) String() string { return Types[t].Short }

// URL is the type URL.
func (t Type) URL() string { return Types[t].URL }
