package model

import "regexp"

// KindEnvoyFilter is the kind of EnvoyFilter.
const KindEnvoyFilter Kind = "EnvoyFilter"

// EnvoyFilter changes what is generated for the proxies of workloads.
type EnvoyFilter struct {
	Meta
	Selector map[string]string // empty: the whole namespace
	Targets
	Priority int32        // lower ones are applied first
	Patches  []EnvoyPatch // those that can have an effect, in order
}

// SelectorLabels implements Selecting.
func (f *EnvoyFilter) SelectorLabels() map[string]string { return f.Selector }

// ShapesOutbound implements Selecting.
func (f *EnvoyFilter) ShapesOutbound() bool {
	for i := range f.Patches {
		if f.Patches[i].Context != PatchInbound {
			return true
		}
	}
	return false
}

// PatchTarget is what a patch applies to.
type PatchTarget string

// The targets, Istio's applyTo.
const (
	PatchListener        PatchTarget = "LISTENER"
	PatchFilterChain     PatchTarget = "FILTER_CHAIN"
	PatchListenerFilter  PatchTarget = "LISTENER_FILTER"
	PatchNetworkFilter   PatchTarget = "NETWORK_FILTER"
	PatchHTTPFilter      PatchTarget = "HTTP_FILTER"
	PatchRouteConfig     PatchTarget = "ROUTE_CONFIGURATION"
	PatchVirtualHost     PatchTarget = "VIRTUAL_HOST"
	PatchHTTPRoute       PatchTarget = "HTTP_ROUTE"
	PatchCluster         PatchTarget = "CLUSTER"
	PatchExtensionConfig PatchTarget = "EXTENSION_CONFIG"
	PatchBootstrap       PatchTarget = "BOOTSTRAP"
)

// PatchOperation is what a patch does.
type PatchOperation string

// The operations, Istio's.
const (
	PatchMerge        PatchOperation = "MERGE"
	PatchMergeReplace PatchOperation = "MERGE_AND_REPLACE_LIST"
	PatchAdd          PatchOperation = "ADD"
	PatchRemove       PatchOperation = "REMOVE"
	PatchBefore       PatchOperation = "INSERT_BEFORE"
	PatchAfter        PatchOperation = "INSERT_AFTER"
	PatchFirst        PatchOperation = "INSERT_FIRST"
	PatchReplace      PatchOperation = "REPLACE"
)

// Merges tells whether the value is merged into what is there.
func (o PatchOperation) Merges() bool { return o == PatchMerge || o == PatchMergeReplace }

// PatchContext is where a patch counts. Empty: everywhere.
type PatchContext string

// The contexts.
const (
	PatchAnywhere PatchContext = ""
	PatchInbound  PatchContext = "SIDECAR_INBOUND"
	PatchOutbound PatchContext = "SIDECAR_OUTBOUND"
	PatchGateway  PatchContext = "GATEWAY"
)

// EnvoyPatch is one change of Envoy's configuration.
type EnvoyPatch struct {
	Index     int // in spec.configPatches
	Target    PatchTarget
	Operation PatchOperation
	Context   PatchContext

	// Value is the encoded Envoy message of the target's type; nil where it is removed.
	Value []byte
	// Name is that of the value; Domains those of a virtual host.
	Name    string
	Domains []string

	ProxyVersion  *regexp.Regexp    // of Istio's proxies; nil: any
	ProxyMetadata map[string]string // that the proxy's node must have

	// At most one of these is set; nil: any.
	Listener *ListenerMatch
	Routes   *RouteConfigMatch
	Cluster  *ClusterMatch
}

// ListenerMatch finds listeners and what is in them; empty fields match anything.
type ListenerMatch struct {
	Name           string
	Port           uint32
	ListenerFilter string
	// Of filter chains.
	ChainName            string
	SNI                  string
	TransportProtocol    string
	ApplicationProtocols []string // all of them
	DestinationPort      uint32
	Filter               string // network filter, by its name of today
	SubFilter            string // HTTP filter, likewise
}

// RouteConfigMatch finds route configurations, virtual hosts and routes; empty fields match
// anything.
type RouteConfigMatch struct {
	Name        string
	Port        uint32
	PortName    string // gateways
	Gateway     string // gateways: "namespace/name"
	VirtualHost string
	Domain      string
	Route       *RouteMatch
}

// RouteMatch finds a route.
type RouteMatch struct {
	Name   string
	Action string // ROUTE, REDIRECT, DIRECT_RESPONSE; empty: any
}

// ClusterMatch finds clusters; empty fields match anything.
type ClusterMatch struct {
	Name    string // alone decides where it is given
	Service Host
	Subset  string
	Port    uint32
}

// MeetsProxy tells whether a proxy is one that the patch is for.
func (p *EnvoyPatch) MeetsProxy(version string, metadata map[string]string) bool {
	if p.ProxyVersion != nil && (version == "" || !p.ProxyVersion.MatchString(version)) {
		return false
	}
	for k, v := range p.ProxyMetadata {
		if metadata[k] != v {
			return false
		}
	}
	return true
}
