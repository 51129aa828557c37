package ir

import (
	"net/netip"
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// Listener is one Envoy listener.
type Listener struct {
	Made

	Added *Patch // if an EnvoyFilter adds it: then only Name and Inbound count

	Name    string // "0.0.0.0_80", "10.0.0.7_3306", "virtualOutbound", "virtualInbound"
	Address string // IP
	Also    string // an address of the other IP family, the same port; empty: none
	Port    uint32
	Inbound bool
	// BindToPort is false for listeners that receive connections from virtualOutbound.
	BindToPort bool
	// UseOriginalDst passes connections to the listener of their original destination.
	UseOriginalDst bool
	// ReadOriginalDst restores the original destination of redirected connections (the original_dst listener filter), and does
	// not pass them to another listener.
	ReadOriginalDst bool
	// Transparent accepts connections to other addresses than the listener's (TPROXY), and calls the application from the
	// caller's address.
	Transparent bool
	// ProxyProtocol: connections begin with that protocol's header; others are closed.
	ProxyProtocol bool
	// InspectTLS and InspectHTTP inspect the first bytes.
	InspectTLS, InspectHTTP bool
	// ContinueOnTimeout uses the default chain if no bytes arrive (protocols in which the server speaks first).
	ContinueOnTimeout bool
	InspectTimeout    time.Duration // 0: Envoy's default
	InspectForever    bool          // there is no timeout
	ExactBalance      bool
	BufferLimit       *uint32 // of a connection, in bytes; nil: Envoy's default
	// Uninspected are destination ports that need no inspection: servers that speak first do not wait for the timeout
	// there. Sorted.
	Uninspected []uint32
	// UninspectedHTTP are those that InspectHTTP leaves out. Sorted.
	UninspectedHTTP []uint32

	Chains  []FilterChain // in order; matches are disjoint
	Default *FilterChain  // if none matches; nil: the connection is closed
}

// FilterChain handles the connections that it matches. Exactly one of HTTP and TCP is set.
type FilterChain struct {
	Made

	Name string
	// IstioName is what Istio calls an inbound chain; empty: the same. Several chains may have one. EnvoyFilters match either name.
	IstioName string
	Match     ChainMatch
	TLS       *ServerTLS // ends TLS; nil: does not decrypt
	HTTP      *HTTPChain
	TCP       *TCPChain
	Wasm      *WasmFilters // of connections; nil: none
	// HandshakeTimeout bounds TLS handshakes; 0: no bound.
	HandshakeTimeout time.Duration
	// Closes: the chain closes connections to the own port of the sidecar, which are not calls.
	Closes bool
}

// ServerTLS ends TLS: the mesh's mutual TLS, for which clients need an identity of a trust domain, or the TLS of a Gateway's
// server or a Sidecar's listener.
type ServerTLS struct {
	TrustDomains []string         // for the mesh's; empty: any that the roots verify
	Server       *model.ServerTLS // nil: the mesh's
	OnlyTLS13    bool             // of the mesh's: no older version
	CipherSuites []string         // of the mesh's, for TLS 1.2; empty: Envoy's default
	AgentFiles   bool             // certificates in files come from the proxy's agent, else Envoy reads them
}

// MeshTLS ends the mesh's mutual TLS by the mesh's settings.
func MeshTLS(m *model.Mesh) *ServerTLS {
	t := &ServerTLS{OnlyTLS13: m.OnlyTLS13, CipherSuites: m.CipherSuites}
	if !m.AnyTrustDomain {
		t.TrustDomains = m.TrustDomains()
	}
	return t
}

// IsMesh reports whether the mesh's certificates are used.
func (t *ServerTLS) IsMesh() bool { return t.Server == nil || t.Server.Mode == model.ServerIstioMutual }

// ChainMatch is a conjunction; empty parts match everything.
type ChainMatch struct {
	DestinationPort   uint32
	Destinations      []netip.Prefix
	ServerNames       []string // SNI; lower case, "*.suffix" allowed
	TransportProtocol string   // "tls", "raw_buffer" or ""
	ALPN              []string // "http/1.1", "h2c", ...
}

// HTTPChain is an HTTP connection manager.
type HTTPChain struct {
	StatPrefix string
	// RouteConfig is fetched by RDS; empty if Inline is set.
	RouteConfig string
	// ShardBits is not 0 if scopes lead to shards of the route configuration (package routeshard). There are
	// 2^ShardBits for names and as many for addresses.
	ShardBits int
	// ShardsOnDemand: Envoy asks for a shard when a request first needs it.
	ShardsOnDemand bool
	Inline         *InlineRoutes
	Inbound        bool
	// Gateway: requests come from outside the mesh.
	Gateway bool
	// Topology is the hops before a gateway.
	Topology model.Topology
	// Headers are those that the proxy sets.
	Headers model.ProxyHeaders
	// HTTP10: clients may use HTTP/1.0.
	HTTP10 bool
	// Outside: the callers of an inbound chain have no sidecar. What they state about clients' certificates is ignored.
	Outside bool
	// PeerTold: callers have certificates, and state in a header which workload they are.
	PeerTold bool
	// GRPCWeb translates grpc-web requests; for ports of that protocol. UseRemoteAddress etc. follow Inbound.
	GRPCWeb bool
	// Paths is how paths are normalized before matching; empty: model.PathsBase.
	Paths model.PathNormalization
	// JWT and Authorization decide which requests pass; nil: all.
	JWT           *JWT
	Authorization *Authorization
	// OnDemand: routes may lead to clusters that Envoy asks for when it calls them.
	OnDemand bool
	// ForwardProxy: routes may lead to a cluster with DiscoverDynamicDNS.
	ForwardProxy bool
	// Families are those of the proxy's addresses, by which Envoy resolves names for ForwardProxy.
	Families    model.Families
	Wasm        *WasmFilters // of requests; nil: none
	IdleTimeout *time.Duration
	Telemetry   *Telemetry // nil: nothing is reported
	// Uncounted: the proxy keeps no statistics of answers by code.
	Uncounted bool
	// FromMesh: clients may be sidecars, which speak HTTP/2 for applications that upgrade HTTP/1.1.
	FromMesh bool
	// Connections bound clients' connections and requests; nil: unset.
	Connections *model.ConnectionSettings
	// MaxConcurrentStreams of a downstream HTTP/2 connection; 0: Envoy's default.
	MaxConcurrentStreams uint32
}

// InlineRoutes is a route configuration inside a listener.
type InlineRoutes struct {
	RouteConfig  RouteConfig
	VirtualHosts []VirtualHost
}

// IstioNames are those of the listener's chains that differ from their names, by name.
func (l *Listener) IstioNames() map[string]string {
	out := map[string]string{}
	l.EachChain(func(c *FilterChain) {
		if c.IstioName != "" {
			out[c.Name] = c.IstioName
		}
	})
	return out
}

// InlineRoutes are the route configurations inside of the listener, by name.
func (l *Listener) InlineRoutes() map[string]RouteConfigKey {
	out := map[string]RouteConfigKey{}
	l.EachChain(func(c *FilterChain) {
		if c.HTTP != nil && c.HTTP.Inline != nil {
			rc := &c.HTTP.Inline.RouteConfig
			out[rc.Name] = rc.Of
		}
	})
	return out
}

// EachChain calls f for each chain, the default one last.
func (l *Listener) EachChain(f func(*FilterChain)) {
	for i := range l.Chains {
		f(&l.Chains[i])
	}
	if l.Default != nil {
		f(l.Default)
	}
}

// TCPChain is a TCP proxy.
type TCPChain struct {
	StatPrefix    string
	Backends      []Backend      // headers unused
	IdleTimeout   *time.Duration // nil: Envoy's; 0: none
	MaxDuration   time.Duration
	Telemetry     *Telemetry        // nil: nothing is reported
	Hash          *model.HashPolicy // only SourceIP counts
	Authorization *Authorization    // which connections pass; nil: all
	// Tunnel sends the connection through HTTP CONNECT.
	Tunnel *model.Tunnel
	// Opaque: the sidecars at the other end must not treat the connection as HTTP, independent of the cluster's port.
	Opaque bool
	// OnDemand: Envoy asks for the backend's cluster, of which there is one, if it does not have it.
	OnDemand bool
	// ForwardSNIPort is set for a backend with DiscoverDynamicDNS: connections go to this port of the host in SNI.
	ForwardSNIPort uint32
	// Families are those of the proxy's addresses, by which Envoy resolves names for ForwardSNIPort.
	Families model.Families
}
