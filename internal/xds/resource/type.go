// Package resource has the types of xDS resources, and their encoding.
//
// Differences between resource types are rows of one table, Types. No other code switches on a type
// URL.
package resource

// Type is an index into Types: a column of a table of resources.
type Type uint8

// The types, in the order in which additions are sent (make before break). RouteConfig and
// VHDSRouteConfig have the same type URL: whole route configurations, and route configurations
// whose virtual hosts are sent by VHDS. A Scope has the name of the route configuration that it
// selects.
const (
	Cluster Type = iota
	Endpoints
	Secret
	Scope
	Listener
	RouteConfig
	VHDSRouteConfig
	VirtualHost
	NameTable
	Extension
	Bootstrap
	NumTypes
)

// Info is a row of Types.
type Info struct {
	Type  Type
	Short string // "CDS"
	URL   string
	// Wildcard: a subscription without names is for all resources.
	Wildcard bool
	// FullState: each state-of-the-world response contains all resources, and omitted ones are
	// removed (CDS and LDS only).
	FullState bool
	// Needs are the types that additions and changes of this type wait for: they may refer to
	// additions of those. A cluster counts when it is ACKed and its endpoints are sent, a scope
	// when it is ACKed and its virtual hosts are sent.
	Needs []Type
	// HeldBy are the types that removals of this type wait for: resources of those types may refer
	// to what is removed until their own changes are ACKed.
	HeldBy []Type
	// HeldByRefused is set if removals of this type also wait while the proxy refuses a resource
	// of a type in HeldBy: it then uses an older form, which may refer to what is removed.
	HeldByRefused bool
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
	NameTableURL   = prefix + "istio.networking.nds.v1.NameTable"         // one for each host; requested by agents, not by Envoy
	ExtensionURL   = prefix + "envoy.config.core.v3.TypedExtensionConfig" // plugins whose modules agents fetch; requested by agents
	BootstrapURL   = prefix + "envoy.config.bootstrap.v3.Bootstrap"       // what EnvoyFilters change of Envoy's bootstrap; requested by agents
	VirtualHostURL = prefix + "envoy.config.route.v3.VirtualHost"
)

// Types is the table, indexed by Type.
var Types = [NumTypes]Info{
	Cluster: {Type: Cluster, Short: "CDS", URL: ClusterURL, Wildcard: true, FullState: true,
		HeldBy: []Type{Listener, RouteConfig, VHDSRouteConfig, VirtualHost}, HeldByRefused: true},
	// Envoy unsubscribes from the endpoints of a cluster that it removes.
	Endpoints: {Type: Endpoints, Short: "EDS", URL: EndpointsURL, HeldBy: []Type{Cluster}},
	// Envoy ACKs a cluster when it has the cluster's secrets, or knows that they do not exist, so
	// secrets wait for nothing. Envoy keeps a removed secret that it has.
	Secret: {Type: Secret, Short: "SDS", URL: SecretURL},
	Scope:  {Type: Scope, Short: "SRDS", URL: ScopeURL, Wildcard: true, HeldBy: []Type{Listener}},
	Listener: {Type: Listener, Short: "LDS", URL: ListenerURL, Wildcard: true, FullState: true,
		Needs: []Type{Cluster, Scope}},
	RouteConfig: {Type: RouteConfig, Short: "RDS", URL: RouteConfigURL,
		Needs: []Type{Cluster}, HeldBy: []Type{Listener, Scope, VirtualHost}},
	VHDSRouteConfig: {Type: VHDSRouteConfig, Short: "RDS", URL: RouteConfigURL,
		Needs: []Type{Cluster}, HeldBy: []Type{Listener, Scope, VirtualHost}},
	VirtualHost: {Type: VirtualHost, Short: "VHDS", URL: VirtualHostURL, Wildcard: true,
		Needs: []Type{Cluster}, HeldBy: []Type{Listener, Scope}},
	NameTable: {Type: NameTable, Short: "NDS", URL: NameTableURL, Wildcard: true},
	Extension: {Type: Extension, Short: "ECDS", URL: ExtensionURL, Wildcard: true},
	Bootstrap: {Type: Bootstrap, Short: "BDS", URL: BootstrapURL, Wildcard: true},
}

// String returns the short name: "CDS".
func (t Type) String() string { return Types[t].Short }

// URL returns the type URL.
func (t Type) URL() string { return Types[t].URL }
