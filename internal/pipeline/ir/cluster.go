// Package ir is what derive produces and translate reads: the outbound and inbound
// world of some proxies, in the mesh's own terms but with every decision made. It is
// the whole input of translate, which therefore cannot depend on anything that derive
// did not declare.
//
// Views are immutable and hold no clock, no pointer to the store and no map whose
// order could reach the output: equal views give equal Envoy resources.
package ir

import (
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// Discovery is how Envoy finds a cluster's endpoints.
type Discovery uint8

// The discoveries.
const (
	DiscoverEDS Discovery = iota
	DiscoverStatic
	DiscoverStrictDNS
	DiscoverLogicalDNS
	DiscoverOriginalDst
	DiscoverDynamicDNS
)

// Names of the clusters that every sidecar has.
const (
	BlackHoleCluster          = "BlackHoleCluster"
	PassthroughCluster        = "PassthroughCluster"
	InboundPassthroughCluster = "InboundPassthroughCluster"
)

// UnknownService is the name of a cluster that does not exist, as in Istio: requests that it would
// get are answered as those to all such clusters.
const UnknownService = "UnknownService"

// Cluster is everything that one Envoy cluster is made of.
type Cluster struct {
	Made

	Added *Patch // where an EnvoyFilter adds it: then nothing but Name and Inbound counts

	Name      string // "outbound|80|v1|reviews.shop.svc.cluster.local"
	AltStat   string // alt_stat_name; empty: Name
	Discovery Discovery
	Inbound   bool

	Host     model.Host // the service; empty for the fixed clusters
	Port     uint32     // service port
	PortName string
	Subset   string
	Service  ServiceRef
	Protocol model.Protocol // upstream protocol of the port

	Policy         model.TrafficPolicy // effective, defaults of the mesh not filled in
	ConnectTimeout time.Duration       // the mesh's, where Policy has none
	Keepalive      *model.TCPKeepalive // likewise, for each of its fields
	DNSRefresh     time.Duration       // of DNS clusters; 0: the default
	TLSDefaults    *model.TLSDefaults  // of TLS that is not the mesh's; nil: Envoy's
	AgentFiles     bool                // certificates in files come from the proxy's agent, else Envoy reads them
	// Localities are the endpoints of static and DNS clusters; nil for EDS.
	Localities []LocalityEndpoints
	// Router: of ports that say no protocol servers are spoken to in HTTP/1.1, whatever clients speak. Those of gateways
	// choose HTTP/2 by ALPN, which says nothing of the servers.
	Router bool
	// External services have no sidecar: no mesh TLS and no peer metadata.
	External bool
	// AutoTLS: Policy.TLS is for endpoints that speak mutual TLS; others get plain text.
	AutoTLS bool
	// MeshHTTP2: all endpoints have sidecars, which take HTTP/2 for any HTTP.
	MeshHTTP2 bool
	// KeepCase: names of headers are sent and taken as they are written, where HTTP/1.1 is spoken.
	KeepCase bool
	// SubjectAltNames to verify where Policy.TLS has none: of a ServiceEntry, or for the mesh's
	// own TLS the SPIFFE ids of the service's workloads.
	SubjectAltNames []string
	// LocalityWeighted tells that localities have weights of their own (locality load
	// balancing distributes).
	LocalityWeighted bool
	// SourceAddress binds upstream connections (127.0.0.6 for inbound); empty: none.
	SourceAddress string
	// SourceAddress6 is that to IPv6 addresses where there are both; empty: there are not.
	SourceAddress6 string
	// Origin is the DestinationRule that shaped the cluster, "namespace/name"; empty: none.
	// It goes to the metadata "istio.config", for people who read config dumps.
	Origin string
	// TLSOrigin is the BackendTLSPolicy that Policy.TLS comes from, likewise; it has a field of its own there.
	TLSOrigin string
}

// MeshTLS tells whether connections are secured by the mesh's own TLS.
func (c *Cluster) MeshTLS() bool {
	return c.Policy.TLS != nil && c.Policy.TLS.Mode == model.TLSIstioMutual
}

// ServiceRef names a service in the metadata of clusters.
type ServiceRef struct {
	Host      model.Host
	Name      string
	Namespace string
}

// Endpoints is one EDS resource.
type Endpoints struct {
	Made

	Cluster    string
	Localities []LocalityEndpoints // sorted by priority and locality
	// TellPlain: the cluster may have mutual TLS for those of its endpoints that speak it, so that
	// the others have to say that they do not. It does not depend on whether the cluster has it at
	// the moment, for Envoy may know endpoints that are newer than their cluster.
	TellPlain bool
}

// LocalityEndpoints are the endpoints of one locality.
type LocalityEndpoints struct {
	Locality  model.Locality
	Priority  uint32
	Weight    uint32 // 0: the sum of the endpoints' weights
	Endpoints []Endpoint
}

// Endpoint is one address with its port. Address may be an IP, a DNS name or a path.
type Endpoint struct {
	Address string
	Port    uint32
	Weight  uint32 // at least 1
	Health  model.Health
	MTLS    bool // its sidecar speaks mutual TLS on the port

	Workload  string // for the metadata "istio.workload", see Istio's EndpointMetadata
	Namespace string
	Canonical string // canonical service name
	Revision  string // canonical revision
	App       string // label app
	Version   string // label version
	Cluster   string
}
