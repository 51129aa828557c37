package model

import "time"

// Mesh is the mesh-wide configuration: the part of Istio's MeshConfig that is honoured.
type Mesh struct {
	Domain         string // of the cluster: "cluster.local"
	RootNamespace  string // its Sidecar and DestinationRules are defaults for all
	Outbound       OutboundMode
	ConnectTimeout time.Duration
	AccessLogFile  string // empty: none
	Telemetry      MeshTelemetry
	DefaultRetry   Retry
	InboundRetry   Retry  // of sidecars' calls of their own application; not of gRPC
	InboundPort    uint32 // where connections to workloads are redirected to; Istio's is 15006
	// LocalInbound: applications are called at the loopback address, not where the connection was going.
	LocalInbound bool
	OutboundPort uint32 // likewise those that they make; Istio's is 15001

	TrustDomain        string   // of the mesh's identities
	TrustDomainAliases []string // that are believed, too
	AutoMTLS           bool     // callers speak mutual TLS to whoever has a sidecar
	// OnlyTLS13: workloads take the mesh's mutual TLS of no older version; else of 1.2, too.
	OnlyTLS13 bool
	// CipherSuites are those that workloads take the mesh's mutual TLS 1.2 with; empty: Envoy's default.
	// TLS 1.3 has its own.
	CipherSuites []string
	TLSDefaults  *TLSDefaults // nil: Envoy's
	// MeshHTTP2: whether sidecars speak HTTP/2 to sidecars, whatever their applications speak. By default they
	// do, but where limits are set that are about connections of HTTP/1.1.
	MeshHTTP2 H2Upgrade

	Authorizers map[string]*ExternalAuthorizer // by name

	Paths PathNormalization // of all requests; empty: PathsBase

	Topology Topology // of gateways that say nothing of their own

	Headers ProxyHeaders // of proxies that say nothing of their own

	// Baseline is what holds of calls where a DestinationRule says nothing: connection pool and outlier detection alone.
	Baseline TrafficPolicy

	Keepalive *TCPKeepalive // of connections to upstreams; a DestinationRule's fields go before
	// DNSRefresh is how often names are resolved where the answer has no time to live; 0: Istio's default.
	DNSRefresh time.Duration
	// DetectionTimeout bounds how long a client may keep silent before its connection is taken for a protocol in
	// which the server speaks first; nil: the default, 0: for ever.
	DetectionTimeout *time.Duration

	AutoAddresses AutoAddresses // of ServiceEntries without addresses

	// Locality is for services of which neither a DestinationRule nor the service says anything. nil: failover to
	// near endpoints where outlier detection is on.
	Locality *LocalityLB
}

// PathNormalization is what sidecars and gateways make of the path of a request before routes and
// policies look at it. What comes of it goes on to the application.
type PathNormalization string

// Istio's: each does what the one before does, too.
const (
	PathsAsTheyAre   PathNormalization = "NONE"
	PathsBase        PathNormalization = "BASE" // RFC 3986: "/a/../b" is "/b"
	PathsMerged      PathNormalization = "MERGE_SLASHES"
	PathsDecodeSlash PathNormalization = "DECODE_AND_MERGE_SLASHES" // %2F and %5C are slashes, first of all
)

// TrustDomains are all whose identities are believed, the mesh's own first.
func (m *Mesh) TrustDomains() []string {
	return append([]string{m.TrustDomain}, m.TrustDomainAliases...)
}

// DefaultMesh is Istio's default where Istio has one.
func DefaultMesh() *Mesh {
	return &Mesh{
		Domain:         "cluster.local",
		RootNamespace:  "istio-system",
		Outbound:       OutboundAllowAny,
		ConnectTimeout: 10 * time.Second,
		DefaultRetry: Retry{
			Attempts: 2,
			// Without codes the last word counts for those of a request's x-envoy-retriable-status-codes.
			RetryOn: "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
		},
		InboundRetry: Retry{Attempts: 2, RetryOn: "reset-before-request"},
		Telemetry:    DefaultMeshTelemetry(),
		InboundPort:  15006,
		OutboundPort: 15001,
		TrustDomain:  DefaultTrustDomain,
		AutoMTLS:     true,

		AutoAddresses: DefaultAutoAddresses(),
	}
}
