package model

import (
	"regexp"
	"slices"
)

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

// KindWasmPlugin is Istio's kind of that name.
const KindWasmPlugin Kind = "WasmPlugin"

// WasmPhase is where among the filters a plugin goes.
type WasmPhase string

// The phases: before tokens are checked, before authorization, before statistics, last.
const (
	WasmUnspecified WasmPhase = ""
	WasmAuthn       WasmPhase = "AUTHN"
	WasmAuthz       WasmPhase = "AUTHZ"
	WasmStats       WasmPhase = "STATS"
)

// WasmPlugin is a filter in WebAssembly, of requests or of connections. Those of the root namespace
// are for all.
type WasmPlugin struct {
	Meta
	Selector map[string]string // empty: all workloads of its namespace
	Targets
	Network    bool       // of connections, whatever is spoken on them; else of requests
	File       string     // of the sidecar, with the module; empty: it is fetched
	Module     WasmModule // what is fetched; zero: nothing
	PluginName string     // what the module is told it is called; empty: its object's name
	Config     string     // what it is configured with: JSON; empty: nothing
	Phase      WasmPhase
	Priority   int32 // within the phase; the highest first
	FailOpen   bool  // calls pass where the module cannot be had, or has failed
	Reload     bool  // a module that has failed is started again
	Env        []WasmVariable
	Matches    []WasmMatch // any of them; empty: all traffic
}

// WasmModule says where a sidecar's agent fetches a module, and how.
type WasmModule struct {
	URL    string // http://, https:// or oci://
	SHA256 string // in hex, of the module or of the image's manifest; empty: any
	// PullSecret has credentials for registries: a Secret of the object's namespace, for its
	// workloads whose service account may read it; empty: none.
	PullSecret string
	Always     bool // it is fetched anew for each version of the object; else what is kept will do
}

// PullSecretKey is the Secret with the credentials that a module is fetched with; false: none.
func (w *WasmPlugin) PullSecretKey() (Key, bool) {
	return Key{Kind: KindSecret, Namespace: w.Namespace, Name: w.Module.PullSecret}, w.Module.PullSecret != ""
}

// WasmVariable is an environment variable of the module.
type WasmVariable struct {
	Name, Value string
	FromHost    bool // Envoy's own, and not Value
}

// WasmMatch is some traffic.
type WasmMatch struct {
	Sides Sides
	Ports []uint32 // of the listener or, inbound, of the workload; empty: all
}

// SelectorLabels implements Selecting.
func (w *WasmPlugin) SelectorLabels() map[string]string { return w.Selector }

// ShapesOutbound implements Selecting.
func (w *WasmPlugin) ShapesOutbound() bool { return true }

// On tells whether a plugin is for traffic of a side at a port.
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

// OnSide tells whether the plugin works on traffic of a side at some port.
func (w *WasmPlugin) OnSide(side Sides) bool {
	return len(w.Matches) == 0 || slices.ContainsFunc(w.Matches, func(m WasmMatch) bool { return m.Sides&side != 0 })
}
