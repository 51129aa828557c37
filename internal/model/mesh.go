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
	InboundPort    uint32 // 15006
	OutboundPort   uint32 // 15001

	TrustDomain        string   // of the mesh's identities
	TrustDomainAliases []string // that are believed, too
	AutoMTLS           bool     // callers speak mutual TLS to whoever has a sidecar
	// MeshHTTP2: whether sidecars speak HTTP/2 to sidecars, whatever their applications speak. By default they
	// do, but where limits are set that are about connections of HTTP/1.1.
	MeshHTTP2 H2Upgrade

	Authorizers map[string]*ExternalAuthorizer // by name
}

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
			RetryOn:  "connect-failure,refused-stream,unavailable,cancelled",
		},
		Telemetry:    DefaultMeshTelemetry(),
		InboundPort:  15006,
		OutboundPort: 15001,
		TrustDomain:  DefaultTrustDomain,
		AutoMTLS:     true,
	}
}
