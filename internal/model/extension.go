package model

import (
	"regexp"
	"slices"
)

// KindEnvoyFilter is the kind of EnvoyFilter.
const KindEnvoyFilter Kind = "EnvoyFilter"

// EnvoyFilter changes the generated configuration of workloads' proxies.
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

// PatchOperation is the operation of a patch.
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

// Merges reports whether the value is merged into the present configuration.
func (o PatchOperation) Merges() bool { return o == PatchMerge || o == PatchMergeReplace }

// PatchContext is the traffic that a patch applies to. Empty: all.
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

	// Value is the encoded Envoy message of the target's type; nil for a removal.
	Value []byte
	// Name is the name in the value; Domains are those of a virtual host.
	Name    string
	Domains []string

	ProxyVersion  *regexp.Regexp    // of Istio's proxies; nil: any
	ProxyMetadata map[string]string // that the proxy's node must have

	// At most one of these is set; nil: any.
	Listener *ListenerMatch
	Routes   *RouteConfigMatch
	Cluster  *ClusterMatch
}

// ListenerMatch selects listeners and their parts; empty fields match anything.
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
	Filter               string // network filter, by its present name
	SubFilter            string // HTTP filter, by its present name
}

// RouteConfigMatch selects route configurations, virtual hosts and routes; empty fields match anything.
type RouteConfigMatch struct {
	Name        string
	Port        uint32
	PortName    string // gateways
	Gateway     string // gateways: "namespace/name"
	VirtualHost string
	Domain      string
	Route       *RouteMatch
}

// RouteMatch selects a route.
type RouteMatch struct {
	Name   string
	Action string // ROUTE, REDIRECT, DIRECT_RESPONSE; empty: any
}

// ClusterMatch selects clusters; empty fields match anything.
type ClusterMatch struct {
	Name    string // the other fields are ignored if it is set
	Service Host
	Subset  string
	Port    uint32
}

// MeetsProxy reports whether the patch applies to a proxy.
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

// KindWasmPlugin is the kind of Istio's WasmPlugins.
const KindWasmPlugin Kind = "WasmPlugin"

// WasmPhase is a plugin's place among the filters.
type WasmPhase string

// The phases: before tokens are checked, before authorization, before statistics, last.
const (
	WasmUnspecified WasmPhase = ""
	WasmAuthn       WasmPhase = "AUTHN"
	WasmAuthz       WasmPhase = "AUTHZ"
	WasmStats       WasmPhase = "STATS"
)

// WasmPlugin is a WebAssembly filter of requests or connections. Plugins of the root namespace apply to all namespaces.
type WasmPlugin struct {
	Meta
	Selector map[string]string // empty: all workloads of its namespace
	Targets
	Network    bool       // a filter of connections with any protocol; else of requests
	File       string     // path of the module in the sidecar; empty: it is fetched
	Module     WasmModule // the module to fetch; zero: none
	PluginName string     // name that the module gets; empty: the object's name
	Config     string     // the module's configuration, JSON; empty: none
	Phase      WasmPhase
	Priority   int32 // within the phase; the highest comes first
	FailOpen   bool  // calls pass without the module, or after its failure
	Reload     bool  // a module that failed is started again
	Env        []WasmVariable
	Matches    []WasmMatch // any of them; empty: all traffic
}

// WasmModule describes how a sidecar's agent fetches a module.
type WasmModule struct {
	URL    string // http://, https:// or oci://
	SHA256 string // in hex, of the module or of the image's manifest; empty: any
	// PullSecret has credentials for registries: a Secret of the object's namespace, for workloads whose service
	// account may read it; empty: none.
	PullSecret string
	Always     bool // each version of the object is fetched; else a cached module is used
}

// PullSecretKey returns the Secret with the credentials for a module; false: none.
func (w *WasmPlugin) PullSecretKey() (Key, bool) {
	return Key{Kind: KindSecret, Namespace: w.Namespace, Name: w.Module.PullSecret}, w.Module.PullSecret != ""
}

// WasmVariable is an environment variable of the module.
type WasmVariable struct {
	Name, Value string
	FromHost    bool // from Envoy's environment instead of Value
}

// WasmMatch selects traffic.
type WasmMatch struct {
	Sides Sides
	Ports []uint32 // of the listener or, inbound, of the workload; empty: all
}

// SelectorLabels implements Selecting.
func (w *WasmPlugin) SelectorLabels() map[string]string { return w.Selector }

// ShapesOutbound implements Selecting.
func (w *WasmPlugin) ShapesOutbound() bool { return true }

// On reports whether a plugin applies to traffic of a side at a port.
func (w *WasmPlugin) On(side Sides, port uint32) bool {
	for _, m := range w.Matches {
		if m.Sides&side == 0 {
			continue
		}
		if len(m.Ports) == 0 {
			return true
		}
		for _, p := range m.Ports {
			if p == port {
				return true
			}
		}
	}
	return len(w.Matches) == 0
}

// OnSide reports whether a plugin applies to any traffic of a side.
func (w *WasmPlugin) OnSide(side Sides) bool {
	return len(w.Matches) == 0 || slices.ContainsFunc(w.Matches, func(m WasmMatch) bool { return m.Sides&side != 0 })
}
