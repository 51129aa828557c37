package model

import "time"

// Mesh is the mesh-wide configuration: the part of Istio's MeshConfig that is honoured.
type Mesh struct {
	Domain         string // of the cluster: "cluster.local"
	RootNamespace  string // its Sidecar and DestinationRules are defaults for all
	Outbound       OutboundMode
	ConnectTimeout time.Duration
	AccessLogFile  string // empty: none
	DefaultRetry   Retry
	InboundPort    uint32 // 15006
	OutboundPort   uint32 // 15001
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
		InboundPort:  15006,
		OutboundPort: 15001,
	}
}
