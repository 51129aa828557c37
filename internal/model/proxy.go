package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// ProxyType is the first part of an Istio node id.
type ProxyType string

// The proxy types.
const (
	ProxySidecar ProxyType = "sidecar"
	ProxyRouter  ProxyType = "router"
)

// Interception is how a workload's connections reach its sidecar (INTERCEPTION_MODE).
type Interception string

// AnnotationInterception is Istio's annotation of Pods with an Interception.
const AnnotationInterception = "sidecar.istio.io/interceptionMode"

// The interception modes. None: applications connect to the sidecar.
const (
	InterceptRedirect Interception = "REDIRECT"
	InterceptTProxy   Interception = "TPROXY"
	InterceptNone     Interception = "NONE"
)

// Proxy is what a proxy reports about itself when it connects. It does not change during its stream.
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
	Metadata       map[string]string // the node's metadata with text values
	EnvoyVersion   string            // of the binary: "1.40.0"; empty: unknown
	NoShards       bool              // an Envoy built without an extension that route shards need
	NamedPorts     map[string]uint32
	Instance       string // new with each start of the sidecar; empty: unknown
	Peer           string // IP address that it connects from; empty: unknown
	// StatusPort is the agent's port with debug pages; 0: none.
	StatusPort uint16
	// Identity: the agent serves certificates to the proxy, so it can use mutual TLS.
	Identity bool
	// Names: the stream of a sidecar's DNS proxy, which requests names only.
	Names bool
	// Modules: the agent fetches Wasm modules for the proxy.
	Modules bool
	// Files: the agent reads files with certificates for the proxy.
	Files bool
	// Extensions: the stream of a sidecar's agent, which requests only plugins with modules to fetch, and patches of
	// its Envoy's bootstrap.
	Extensions bool
	// Uncounted: Envoy keeps no statistics by response code, so that routes need not count them.
	Uncounted bool
	// AnyWorker: any worker thread may accept an inbound connection, because there is only one or by setting.
	AnyWorker bool
	// Unprivileged: it cannot listen on ports below PrivilegedPorts.
	Unprivileged bool
	// HTTP10: it accepts requests of HTTP/1.0, by its own setting.
	HTTP10 bool
	// DNSCapture: the sidecar's DNS proxy gets its applications' questions.
	DNSCapture bool
	// AutoAllocate: it uses addresses of ServiceEntries that the control plane assigns, even if the mesh does not
	// (Istio's older switch).
	AutoAllocate bool
	// Topology is that of a router, from its PROXY_CONFIG.
	Topology Topology
	// Headers are the headers that it sets, from its PROXY_CONFIG.
	Headers ProxyHeaders
	// Tracing is the tracing setting of its Pod.
	Tracing ProxyTracing
	// Connections are its own connectionSettings; empty: the mesh's apply.
	Connections ProxyConnections
	// Verified: its certificate has Namespace and ServiceAccount.
	Verified bool
	// ScopedRoutes: it gets large route configurations as route shards, by SRDS. The server decides that from other
	// properties of the proxy.
	ScopedRoutes bool
	// OnDemand: it can ask for clusters by name. The server decides that from other properties of the proxy.
	OnDemand bool
	// Delivery is how it gets clusters, by an annotation of its Pod; empty: its namespace or the mesh decides.
	Delivery Delivery
}

// PrivilegedPorts are the ports below this one. By default only root may listen on them on Linux.
const PrivilegedPorts = 1024

// String returns "name.namespace".
func (p *Proxy) String() string { return p.Name + "." + p.Namespace }

// ClusterDomain returns the DNS domain of the cluster: "cluster.local" if unknown.
func (p *Proxy) ClusterDomain() string {
	if _, d, ok := strings.Cut(p.DNSDomain, ".svc."); ok {
		return d
	}
	return "cluster.local"
}

// Families are the IP families of a proxy's addresses.
type Families uint8

// The families. A proxy without addresses has IPv4.
const (
	IPv4 Families = iota
	IPv6
	DualStack
)

// String returns "ipv4", "ipv6" or "dual-stack".
func (f Families) String() string { return [...]string{"ipv4", "ipv6", "dual-stack"}[f] }

// OnLoopback reports whether its first address is a loopback address: the mesh runs on one machine.
func (p *Proxy) OnLoopback() bool {
	return len(p.IPs) > 0 && IsLoopback(p.IPs[0])
}

// Families returns the families of its addresses.
func (p *Proxy) Families() Families {
	var four, six bool
	for _, text := range p.IPs {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		is6 := ip.Unmap().Is6()
		four, six = four || !is6, six || is6
	}
	switch {
	case four && six:
		return DualStack
	case six:
		return IPv6
	}
	return IPv4
}

// DefaultTrustDomain is the trust domain if the mesh's configuration has none.
const DefaultTrustDomain = "cluster.local"

// Identity is a workload's service account. Its certificate contains it as a SPIFFE id.
type Identity struct {
	TrustDomain    string
	Namespace      string
	ServiceAccount string
}

// spiffeScheme begins a SPIFFE id.
const spiffeScheme = "spiffe://"

// String returns the SPIFFE id: "spiffe://cluster.local/ns/shop/sa/web".
func (i Identity) String() string {
	return spiffeScheme + i.TrustDomain + "/ns/" + i.Namespace + "/sa/" + i.ServiceAccount
}

// ParseIdentity decodes a SPIFFE id in the form of String.
func ParseIdentity(id string) (Identity, error) {
	rest, ok := strings.CutPrefix(id, spiffeScheme)
	if !ok {
		return Identity{}, fmt.Errorf("%q is not a SPIFFE id: it does not begin with %s", id, spiffeScheme)
	}
	p := strings.Split(rest, "/")
	if len(p) != 5 || p[1] != "ns" || p[3] != "sa" {
		return Identity{}, fmt.Errorf("%q is not of the form spiffe://<trust domain>/ns/<namespace>/sa/<service account>", id)
	}
	i := Identity{TrustDomain: p[0], Namespace: p[2], ServiceAccount: p[4]}
	return i, i.Check()
}

// Check returns why it is not a valid identity.
func (i Identity) Check() error {
	for _, part := range []struct{ what, value string }{
		{"trust domain", i.TrustDomain}, {"namespace", i.Namespace}, {"service account", i.ServiceAccount},
	} {
		if part.value == "" {
			return fmt.Errorf("the %s is missing", part.what)
		}
		if len(part.value) > maxIdentityPart || strings.ContainsFunc(part.value, notOfIdentity) {
			return fmt.Errorf("%q is not a valid %s: use at most %d letters, digits, '-', '.' and '_'", part.value, part.what, maxIdentityPart)
		}
	}
	return nil
}

// Characters in parts of an identity: those of DNS names, and some more of SPIFFE.
const (
	identityLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
	maxIdentityPart = 255
)

func notOfIdentity(r rune) bool { return !strings.ContainsRune(identityLetters, r) }

// Topology describes what is between clients and a gateway: Istio's gatewayTopology. It is comparable.
type Topology struct {
	Set bool // else unset: Istio's defaults apply
	// TrustedProxies is the number of proxies before the gateway whose entries in X-Forwarded-For are trusted: the
	// client's address is that many from the end.
	TrustedProxies uint32
	// ClientCertificates is the handling of X-Forwarded-Client-Cert, in Istio's words; empty: SANITIZE_SET.
	ClientCertificates string
	// ProxyProtocol: each connection begins with a header of the PROXY protocol, which contains the client's address.
	ProxyProtocol bool
}

// String returns a short text that distinguishes topologies.
func (t Topology) String() string {
	return fmt.Sprintf("hops=%d,certificates=%s,proxy-protocol=%t", t.TrustedProxies, t.ClientCertificates, t.ProxyProtocol)
}

// Locality is where a workload runs. Empty parts are unknown.
type Locality struct {
	Region, Zone, Subzone string
}

// ParseLocality decodes "region/zone/subzone". As in Istio, further parts belong to the subzone; see Check.
func ParseLocality(s string) Locality {
	p := strings.SplitN(s, "/", 3)
	for len(p) < 3 {
		p = append(p, "")
	}
	return Locality{p[0], p[1], p[2]}
}

// String returns "region/zone/subzone" without trailing empty parts.
func (l Locality) String() string {
	return strings.TrimRight(l.Region+"/"+l.Zone+"/"+l.Subzone, "/")
}

// Check returns the error of an invalid locality.
func (l Locality) Check() error {
	if strings.Contains(l.Subzone, "/") {
		return fmt.Errorf("%q has more than three parts: write region/zone/subzone, or less of it", l)
	}
	return nil
}

// Health of an endpoint, as far as the source knows it.
type Health uint8

// The healths. Draining endpoints are called only if there are no others.
const (
	Healthy Health = iota
	Unhealthy
	Draining
)

// Endpoint is one address that serves one or more ports of a service.
type Endpoint struct {
	Address  string            // IP address, DNS name, or an absolute path of a Unix socket
	Ports    map[string]uint32 // service port name -> port; absent: the service's target port
	Labels   map[string]string // for subsets
	Locality Locality
	Node     string // empty: unknown
	Weight   uint32 // 0 means 1
	Health   Health
	Sidecar  bool // it has a sidecar with an identity
	Network  string

	Workload       string // name of the workload, for telemetry
	Namespace      string
	ServiceAccount string
	// TLS is what its sidecar accepts; nil: it has none.
	TLS *PeerTLS
}

// SpeaksMTLS reports whether callers of a port must use mutual TLS.
func (e *Endpoint) SpeaksMTLS(port uint32) bool { return e.TLS != nil && e.TLS.Of(port) != MTLSDisable }

// EndpointSlice is one slice of a Kubernetes service's endpoints. The labels of endpoints come from their workloads
// (Pods), by name.
type EndpointSlice struct {
	Meta
	Service string // name of the service in the same namespace
	Ports   []SlicePort
	Members []SliceEndpoint
	// PodsListed: the source has listed all Pods, so a missing Pod of a member is unknown yet or gone. Otherwise a
	// member without its Pod is valid.
	PodsListed bool
}

// SlicePort maps a service port's name to the number that the endpoints listen on.
type SlicePort struct {
	Name   string
	Number uint32
}

// SliceEndpoint is one entry of an EndpointSlice.
type SliceEndpoint struct {
	Addresses   []string // only the first one is used
	Ready       bool     // ready to take requests
	Serving     bool     // as Ready, but also while terminating
	Terminating bool
	Pod         string // name of the Pod of the same namespace; empty: none of it
	Node, Zone  string
}

// Workload is a Pod or a WorkloadEntry.
type Workload struct {
	Meta
	Addresses      []string
	Owner          string // the Deployment or other object that owns it; empty: unknown
	ServiceAccount string
	Node           string
	Locality       Locality
	Network        string
	Weight         uint32
	NamedPorts     map[string]uint32 // container ports by name; of a WorkloadEntry: service ports' names -> port
	Interception   Interception      // of its Pod's annotation; empty: the mesh's
	HostNetwork    bool              // shares its node's address, so it has no sidecar
	Ready          bool
	Terminating    bool
}

// Address returns the workload's first address, or "".
func (w *Workload) Address() string {
	if len(w.Addresses) == 0 {
		return ""
	}
	return w.Addresses[0]
}

// SpeaksMTLS reports whether the workload has a sidecar with an identity. All Pods have a service account, so only their
// label counts.
func (w *Workload) SpeaksMTLS() bool {
	if w.Kind == KindWorkloadEntry {
		return EntrySpeaksMTLS(w.Labels, w.ServiceAccount)
	}
	return w.Labels[LabelTLSMode] == TLSModeLabelIstio
}

// Ended reports whether the workload takes no calls any more, and callers need not know it.
func (w *Workload) Ended() bool { return w.Terminating && !w.Ready }

// OwnsAddress reports whether a Pod is the only one at its addresses. Pods on the network of their node share them, and another
// Pod may get those of a Pod that has ended.
func (w *Workload) OwnsAddress() bool { return !w.HostNetwork && !w.Ended() }

// Account returns the workload's service account.
func (w *Workload) Account() string {
	if w.ServiceAccount == "" {
		return "default"
	}
	return w.ServiceAccount
}

// Node is a node of the cluster.
type Node struct {
	Meta
	Locality Locality
}

// On returns a workload's locality, completed from its node's unless they contradict each other.
func (l Locality) On(node Locality) Locality {
	for _, p := range []struct{ own, node *string }{
		{&l.Region, &node.Region}, {&l.Zone, &node.Zone}, {&l.Subzone, &node.Subzone},
	} {
		if *p.own != "" && *p.own != *p.node {
			break
		}
		*p.own = *p.node
	}
	return l
}

// SelectorMatches reports whether labels contain all pairs of selector. An empty selector matches everything; callers
// must check if that is not intended.
func SelectorMatches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// HasLabels reports whether an endpoint has all labels of a subset. Those of topology come from its locality, node and network,
// if these are known, and from the cluster of its callers: a mesh has one.
func (e *Endpoint) HasLabels(subset map[string]string, cluster string) bool {
	for k, v := range subset {
		got, ok := e.Label(k)
		if k == LabelCluster && cluster != "" {
			got, ok = cluster, true
		}
		if !ok || got != v {
			return false
		}
	}
	return true
}

// Label returns a label. Those of topology come from the endpoint's locality, node and network, if these are known.
func (e *Endpoint) Label(key string) (string, bool) {
	own, ok := e.Labels[key]
	known := ""
	switch key {
	case LabelRegion:
		known = e.Locality.Region
	case LabelZone:
		known = e.Locality.Zone
	case LabelSubzone:
		known = e.Locality.Subzone
	case LabelNode:
		known = e.Node
	case LabelNetwork:
		known = cmp.Or(own, e.Network)
	}
	if known != "" {
		return known, true
	}
	return own, ok
}

// IsSocket reports whether an endpoint's address is a Unix socket: an absolute path, or "@" and an abstract name.
func IsSocket(address string) bool {
	return strings.HasPrefix(address, "/") || strings.HasPrefix(address, "@")
}

// IsIP reports whether an endpoint's address is an IP address.
func IsIP(address string) bool {
	_, err := netip.ParseAddr(address)
	return err == nil
}
