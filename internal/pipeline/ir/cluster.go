package ir

import (
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/resourcename"
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

// UnknownService is the name of a cluster that does not exist, as in Istio. Envoy answers its requests with an error.
const UnknownService = "UnknownService"

// Cluster is one Envoy cluster.
type Cluster struct {
	Made

	Added *Patch // if an EnvoyFilter adds it: then only Name and Inbound count

	Name string // "outbound|80|v1|reviews.shop.svc.cluster.local"
	// Of is what Name is made of; zero for the fixed clusters. EnvoyFilters match it.
	Of        resourcename.Cluster
	AltStat   string // alt_stat_name; empty: Name
	Discovery Discovery
	Inbound   bool
	// OnDemand: it is sent to a proxy when the proxy calls it for the first time.
	OnDemand bool
	// UpstreamPort replaces the port of the original destination; 0: it stays.
	UpstreamPort uint32

	Service ServiceRef
	// OtherHosts are those of further services that have the port of an inbound cluster. EnvoyFilters match them, too.
	OtherHosts []model.Host
	Protocol   model.Protocol // upstream protocol of the port

	Policy         model.TrafficPolicy // effective, without the mesh's defaults
	ConnectTimeout time.Duration       // the mesh's, if Policy has none
	Keepalive      *model.TCPKeepalive // the mesh's, for each field that Policy does not set
	DNSRefresh     time.Duration       // of DNS clusters; 0: the default
	Families       model.Families      // of the proxy's addresses, for clusters whose names Envoy resolves
	TLSDefaults    *model.TLSDefaults  // for TLS other than the mesh's; nil: Envoy's
	AgentFiles     bool                // certificates in files come from the proxy's agent, else Envoy reads them
	// Localities are the endpoints of static and DNS clusters; nil for EDS.
	Localities []LocalityEndpoints
	// Router: Envoy speaks HTTP/1.1 to servers on ports without a protocol, independent of clients. Clients of gateways
	// choose HTTP/2 by ALPN, which does not depend on the servers.
	Router bool
	// External services have no sidecar: no mesh TLS and no peer metadata.
	External bool
	// AutoTLS: Policy.TLS applies to endpoints that speak mutual TLS; others get plain text.
	AutoTLS bool
	// MeshHTTP2: all endpoints have sidecars, which accept HTTP/2 instead of HTTP/1.1.
	MeshHTTP2 bool
	// KeepCase: names of HTTP/1.1 headers keep their case.
	KeepCase bool
	// SubjectAltNames to verify if Policy.TLS has none: of a ServiceEntry, or for the mesh's own TLS the SPIFFE ids of the
	// service's workloads.
	SubjectAltNames []string
	// LocalityWeighted: localities have weights, because locality load balancing distributes.
	LocalityWeighted bool
	// SourceAddress binds upstream connections (127.0.0.6 for inbound); empty: none.
	SourceAddress string
	// SourceAddress6 is the one for IPv6 addresses of dual-stack proxies; empty: none.
	SourceAddress6 string
	// Origin is the DestinationRule of the cluster; zero: none. It goes to the metadata "istio.config", for readers of
	// config dumps.
	Origin model.Key
	// TLSOrigin is the BackendTLSPolicy that Policy.TLS comes from; zero: none. It has another field of the metadata.
	TLSOrigin model.Key
}

// MeshTLS reports whether connections use the mesh's own TLS.
func (c *Cluster) MeshTLS() bool {
	return c.Policy.TLS != nil && c.Policy.TLS.Mode == model.TLSIstioMutual
}

// ServiceRef is a service in the metadata of clusters.
type ServiceRef struct {
	Host      model.Host
	Name      string
	Namespace string
}

// Endpoints is one EDS resource.
type Endpoints struct {
	Made

	Cluster    string
	Host       model.Host          // the service
	Localities []LocalityEndpoints // sorted by priority and locality
	// MarksPlaintext: the cluster may use mutual TLS for those of its endpoints that speak it, so that the others must state that
	// they do not. It does not depend on the current cluster, because Envoy may have endpoints that are newer than their
	// cluster.
	MarksPlaintext bool
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
	MTLS    bool   // its sidecar speaks mutual TLS on the port

	Workload  string // for the metadata "istio.workload", see Istio's EndpointMetadata
	Namespace string
	Canonical string // canonical service name
	Revision  string // canonical revision
	App       string // label app
	Version   string // label version
	Cluster   string
}

// Names is what the DNS proxies of sidecars answer for one host.
type Names struct {
	Made

	Host      model.Host
	Addresses []string
	// Of Kubernetes Services: their shorter names.
	Service, Namespace string
}
