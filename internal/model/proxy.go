package model

import "strings"

// ProxyType is the first part of an Istio node id.
type ProxyType string

// The proxy types.
const (
	ProxySidecar ProxyType = "sidecar"
	ProxyRouter  ProxyType = "router"
)

// Interception is how a sidecar gets its workload's traffic (INTERCEPTION_MODE).
type Interception string

// The interception modes. None: applications connect to the sidecar themselves.
const (
	InterceptRedirect Interception = "REDIRECT"
	InterceptTProxy   Interception = "TPROXY"
	InterceptNone     Interception = "NONE"
)

// Proxy is what a proxy says of itself when it connects. It does not change while
// its stream lives.
type Proxy struct {
	ID             string // Envoy's node id: "sidecar~10.0.0.1~reviews-1.shop~shop.svc.cluster.local"
	Type           ProxyType
	Name           string // pod name
	Namespace      string
	IPs            []string // the node id's address first
	Labels         map[string]string
	ServiceAccount string
	Cluster        string // Envoy's node.cluster, usually "app.namespace"
	ClusterID      string
	Network        string
	Locality       Locality
	DNSDomain      string // "shop.svc.cluster.local"
	Interception   Interception
	IstioVersion   string
	Metadata       map[string]string // of its node: what is text
	EnvoyVersion   string            // of the proxy itself: "1.40.0"; empty: not known
	NoShards       bool              // it is an Envoy built without an extension that route shards need
	NamedPorts     map[string]uint32
	Instance       string // another one each time that the sidecar starts; empty: it does not say
	// StatusPort is its agent's, where debug pages are; 0: it has none.
	StatusPort uint16
	// Identity: its agent serves it certificates, so it can speak mutual TLS.
	Identity bool
	// Names: it is a sidecar's DNS proxy, and asks for names alone.
	Names bool
	// Modules: its agent fetches modules of plugins, and gives them to it.
	Modules bool
	// Files: its agent reads files with certificates, and gives them to it.
	Files bool
	// Extensions: it is a sidecar's agent, and asks for plugins with such modules and for what is
	// to be changed of its Envoy's bootstrap alone.
	Extensions bool
	// Uncounted: it keeps none of Envoy's statistics of clusters' answers by code, so that
	// routes need not count them.
	Uncounted bool
	// AnyWorker: whichever of its worker threads may take a connection that comes in: it has but
	// one, or was told so.
	AnyWorker bool
	// Unprivileged: it cannot listen on ports below PrivilegedPorts.
	Unprivileged bool
	// DNSCapture: its applications' questions come to a DNS proxy of ours.
	DNSCapture bool
	// AutoAllocate: it uses addresses that ServiceEntries get, also where the mesh does not (Istio's older switch).
	AutoAllocate bool
	// Topology is a router's, from its PROXY_CONFIG.
	Topology Topology
	// Headers are which it sets, likewise.
	Headers ProxyHeaders
	// Tracing is what its Pod says of traces.
	Tracing ProxyTracing
	// Verified: it has shown by its certificate that it is of Namespace and ServiceAccount.
	Verified bool
	// ScopedRoutes: large route configurations reach it split into buckets, by SRDS. The
	// server decides, by what the proxy is; the proxy says nothing of it.
	ScopedRoutes bool
}

// PrivilegedPorts are those below it: Linux by default lets only root listen on them.
const PrivilegedPorts = 1024

// String is "name.namespace", as people name pods.
func (p *Proxy) String() string { return p.Name + "." + p.Namespace }

// ClusterDomain is the DNS domain of the cluster: "cluster.local" where not said.
func (p *Proxy) ClusterDomain() string {
	if _, d, ok := strings.Cut(p.DNSDomain, ".svc."); ok {
		return d
	}
	return "cluster.local"
}
