package model

import (
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

// Families are the IP families that a proxy's workload has addresses of.
type Families uint8

// The families. A proxy that tells no address has IPv4.
const (
	IPv4 Families = iota
	IPv6
	DualStack
)

// String is "ipv4", "ipv6" or "dual-stack".
func (f Families) String() string { return [...]string{"ipv4", "ipv6", "dual-stack"}[f] }

// Families tells what its addresses are of.
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

// DefaultTrustDomain is the trust domain where the mesh's configuration names none.
const DefaultTrustDomain = "cluster.local"

// Identity is who a workload is: its service account. It is what is in its certificate, as
// a SPIFFE id.
type Identity struct {
	TrustDomain    string
	Namespace      string
	ServiceAccount string
}

// spiffeScheme begins a SPIFFE id.
const spiffeScheme = "spiffe://"

// String is the SPIFFE id: "spiffe://cluster.local/ns/shop/sa/web".
func (i Identity) String() string {
	return spiffeScheme + i.TrustDomain + "/ns/" + i.Namespace + "/sa/" + i.ServiceAccount
}

// ParseIdentity reads a SPIFFE id of the form that String writes.
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

// Check tells what keeps it from being an identity.
func (i Identity) Check() error {
	for _, part := range []struct{ what, value string }{
		{"trust domain", i.TrustDomain}, {"namespace", i.Namespace}, {"service account", i.ServiceAccount},
	} {
		if part.value == "" {
			return fmt.Errorf("the %s is missing", part.what)
		}
		if len(part.value) > maxIdentityPart || strings.ContainsFunc(part.value, notOfIdentity) {
			return fmt.Errorf("%q is no %s: it has at most %d letters, digits, '-', '.' and '_'", part.value, part.what, maxIdentityPart)
		}
	}
	return nil
}

// What parts of an identity are made of: DNS names, and a little more as SPIFFE has it.
const (
	identityLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
	maxIdentityPart = 255
)

func notOfIdentity(r rune) bool { return !strings.ContainsRune(identityLetters, r) }

// Topology is what stands between clients and a gateway: Istio's gatewayTopology. It is comparable.
type Topology struct {
	Said bool // else nothing is said, and what follows is Istio's default
	// TrustedProxies is how many proxies are before the gateway whose word in X-Forwarded-For is taken: so
	// many addresses from its end is the client's.
	TrustedProxies uint32
	// ClientCertificates is what becomes of X-Forwarded-Client-Cert, in Istio's words; empty: SANITIZE_SET.
	ClientCertificates string
	// ProxyProtocol: each connection begins with the PROXY protocol's header, which says who the client is.
	ProxyProtocol bool
}

// String is short, and tells topologies apart.
func (t Topology) String() string {
	return fmt.Sprintf("hops=%d,certificates=%s,proxy-protocol=%t", t.TrustedProxies, t.ClientCertificates, t.ProxyProtocol)
}

// Locality is where a workload runs. Empty parts are unknown.
type Locality struct {
	Region, Zone, Subzone string
}

// ParseLocality reads "region/zone/subzone". Like Istio it takes what is beyond three parts for the subzone's; see Check.
func ParseLocality(s string) Locality {
	p := strings.SplitN(s, "/", 3)
	for len(p) < 3 {
		p = append(p, "")
	}
	return Locality{p[0], p[1], p[2]}
}

// String is "region/zone/subzone" without trailing empty parts.
func (l Locality) String() string {
	return strings.TrimRight(l.Region+"/"+l.Zone+"/"+l.Subzone, "/")
}

// Check tells what is wrong with a locality that somebody wrote.
func (l Locality) Check() error {
	if strings.Contains(l.Subzone, "/") {
		return fmt.Errorf("%q has more than three parts: write region/zone/subzone, or less of it", l)
	}
	return nil
}

// Health of an endpoint, as far as the source knows it.
type Health uint8

// The healths. Draining endpoints take no new requests but keep those they have.
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
	Node     string // empty: not known
	Weight   uint32 // 0 means 1
	Health   Health
	Network  string

	Workload       string // name of the workload, for telemetry
	Namespace      string
	ServiceAccount string
	// TLS is what its sidecar accepts; nil: it has none that speaks mutual TLS.
	TLS *PeerTLS
}

// SpeaksMTLS tells whether a caller of one of its ports is to speak mutual TLS.
func (e *Endpoint) SpeaksMTLS(port uint32) bool { return e.TLS != nil && e.TLS.Of(port) != MTLSDisable }

// EndpointSlice is one slice of a Kubernetes service's endpoints. Labels of its
// endpoints come from the workloads (Pods) that they refer to, by name.
type EndpointSlice struct {
	Meta
	Service string // name of the service in the same namespace
	Ports   []SlicePort
	Members []SliceEndpoint
	// PodsListed says that its source tells of all Pods: one that a member names and that is not there is
	// not known yet, or gone. Else nothing follows from that, and the member counts as it is.
	PodsListed bool
}

// SlicePort maps a service port's name to the number that the endpoints listen on.
type SlicePort struct {
	Name   string
	Number uint32
}

// SliceEndpoint is one entry of an EndpointSlice.
type SliceEndpoint struct {
	Addresses   []string // the first one is used
	Ready       bool     // ready to take requests
	Serving     bool     // as Ready, but also while terminating
	Terminating bool
	Pod         string // name of the Pod of the same namespace; empty: none of it
	Node, Zone  string
}

// Workload is something that runs: a Pod or a WorkloadEntry.
type Workload struct {
	Meta
	Addresses      []string
	Owner          string // what made it, a Deployment or the like; empty: not known
	ServiceAccount string
	Node           string
	Locality       Locality
	Network        string
	Weight         uint32
	NamedPorts     map[string]uint32 // container ports by name; of a WorkloadEntry: service ports' names -> port
	HostNetwork    bool              // shares its node's address, so it has no sidecar
	Ready          bool
	Terminating    bool
}

// Address is the workload's first address, or "".
func (w *Workload) Address() string {
	if len(w.Addresses) == 0 {
		return ""
	}
	return w.Addresses[0]
}

// Account is the workload's service account.
func (w *Workload) Account() string {
	if w.ServiceAccount == "" {
		return "default"
	}
	return w.ServiceAccount
}

// Node is a machine of the cluster: where its Pods are.
type Node struct {
	Meta
	Locality Locality
}

// On is the locality of a workload on a node: its own, completed from the node's where
// that does not contradict it.
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

// SelectorMatches tells whether labels have all pairs of selector. An empty selector
// matches everything: callers for whom it means nothing must ask before.
func SelectorMatches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// IsIP tells whether an endpoint's address needs no resolving.
func IsIP(address string) bool {
	_, err := netip.ParseAddr(address)
	return err == nil
}
