package cluster

import (
	"math"
	"math/bits"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/xds/callstats"
)

// Endpoints translates an EDS resource. It leaves out endpoints whose address is neither an IP address nor the
// path of a Unix socket: Envoy resolves no names in EDS and would refuse the whole message. Proxies receive the
// bytes of EncodeEndpoints, which are the same.
func Endpoints(v *ir.Endpoints) *endpointv3.ClusterLoadAssignment {
	return assignment(v.Cluster, v.Localities, v.MarksPlaintext, isReachable)
}

// assignment has the endpoints whose address is usable.
func assignment(cluster string, localities []ir.LocalityEndpoints, marksPlaintext bool, usable func(string) bool) *endpointv3.ClusterLoadAssignment {
	out := &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	if len(localities) > 0 {
		out.Endpoints = make([]*endpointv3.LocalityLbEndpoints, 0, len(localities))
	}
	s := scaleOf(localities)
	for i := range localities {
		out.Endpoints = append(out.Endpoints, locality(&localities[i], s, marksPlaintext, usable))
	}
	return out
}

// isReachable reports whether an address can be used without resolving a name.
func isReachable(address string) bool {
	return envoyproto.UnixPath(address) != "" || model.IsIP(address)
}

// scale is the number of bits by which weights are shifted right, so that their sum fits into Envoy's 32 bits. It
// is 0 unless weights are extreme.
type scale int

func scaleOf(localities []ir.LocalityEndpoints) scale {
	sum := uint64(0)
	for i := range localities {
		sum += uint64(localities[i].Weight)
		for j := range localities[i].Endpoints {
			sum += uint64(max(localities[i].Endpoints[j].Weight, 1))
		}
	}
	// One bit is reserved for weights that are rounded up to 1.
	if sum <= math.MaxUint32>>1 {
		return 0
	}
	return scale(bits.Len64(sum) - 31)
}

func (s scale) of(weight uint32) uint32 { return max(weight>>s, 1) }

func locality(l *ir.LocalityEndpoints, s scale, marksPlaintext bool, usable func(string) bool) *endpointv3.LocalityLbEndpoints {
	out := &endpointv3.LocalityLbEndpoints{
		Locality:    localityName(l.Locality),
		Priority:    l.Priority,
		LbEndpoints: make([]*endpointv3.LbEndpoint, 0, len(l.Endpoints)),
	}
	parts := make([]endpointParts, len(l.Endpoints))
	sum := uint32(0)
	var metadata *corev3.Metadata
	var of *ir.Endpoint // the endpoint that metadata is of
	for i := range l.Endpoints {
		e := &l.Endpoints[i]
		if !usable(e.Address) {
			continue
		}
		weight := s.of(e.Weight)
		sum += weight
		if of == nil || !sameWorkload(e, of) {
			metadata, of = endpointMetadata(e, marksPlaintext), e
		}
		out.LbEndpoints = append(out.LbEndpoints, parts[i].assemble(e, weight, metadata))
	}
	out.LoadBalancingWeight = s.ofLocality(l, sum)
	return out
}

// ofLocality returns the weight of a locality: its own, or else the sum of its endpoints' weights. With locality
// weighted load balancing, a locality without a weight would receive no requests.
func (s scale) ofLocality(l *ir.LocalityEndpoints, sum uint32) *wrapperspb.UInt32Value {
	if l.Weight != 0 {
		sum = s.of(l.Weight)
	}
	return envoyproto.UInt32(sum)
}

func localityName(l model.Locality) *corev3.Locality {
	if l == (model.Locality{}) {
		return nil
	}
	return &corev3.Locality{Region: l.Region, Zone: l.Zone, SubZone: l.Subzone}
}

// endpointParts are the messages of one endpoint in one allocation. A cluster that lists its endpoints may have
// thousands, and each change of one endpoint makes all of them again.
type endpointParts struct {
	endpoint   endpointv3.LbEndpoint
	identifier endpointv3.LbEndpoint_Endpoint
	host       endpointv3.Endpoint
	address    corev3.Address
	specifier  corev3.Address_SocketAddress
	socket     corev3.SocketAddress
	port       corev3.SocketAddress_PortValue
}

func (p *endpointParts) assemble(e *ir.Endpoint, weight uint32, metadata *corev3.Metadata) *endpointv3.LbEndpoint {
	if envoyproto.UnixPath(e.Address) != "" {
		p.host.Address = envoyproto.Address(e.Address, 0)
	} else {
		p.port.PortValue = e.Port
		p.socket.Address, p.socket.PortSpecifier = e.Address, &p.port
		p.specifier.SocketAddress = &p.socket
		p.address.Address = &p.specifier
		p.host.Address = &p.address
	}
	p.identifier.Endpoint = &p.host
	p.endpoint.HostIdentifier = &p.identifier
	setTraits(&p.endpoint, weight, metadata)
	return &p.endpoint
}

// setTraits sets everything but the address. It leaves out Envoy's default, weight 1.
func setTraits(m *endpointv3.LbEndpoint, weight uint32, metadata *corev3.Metadata) {
	m.Metadata = metadata
	if weight > 1 {
		m.LoadBalancingWeight = wrapperspb.UInt32(weight)
	}
}

// sameWorkload reports whether two endpoints have the same metadata, as successive endpoints usually have.
func sameWorkload(a, b *ir.Endpoint) bool {
	return a.Workload == b.Workload && a.Namespace == b.Namespace && a.Canonical == b.Canonical &&
		a.Revision == b.Revision && a.App == b.App && a.Version == b.Version && a.Cluster == b.Cluster && a.MTLS == b.MTLS
}

// endpointMetadata names the workload, and marks an endpoint that does not accept mesh TLS. Metadata is most of the
// bytes of an endpoint, and of Envoy's time for it.
func endpointMetadata(e *ir.Endpoint, marksPlaintext bool) *corev3.Metadata {
	out := workloadMetadata(e)
	if e.MTLS || !marksPlaintext {
		return out
	}
	if out == nil {
		out = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{}}
	}
	out.FilterMetadata[socketMatch] = speaksPlain
	return out
}

// workloadMetadata is the metadata from which clients take the labels of the destination in their statistics.
func workloadMetadata(e *ir.Endpoint) *corev3.Metadata {
	if e.Workload == "" && e.Namespace == "" && e.Canonical == "" {
		return nil
	}
	w := callstats.Workload{
		Name: e.Workload, Namespace: e.Namespace, Service: e.Canonical, Revision: e.Revision, Cluster: e.Cluster,
		App: e.App, Version: e.Version,
	}
	return envoyproto.IstioMetadata(map[string]*structpb.Value{"workload": structpb.NewStringValue(w.EndpointText())})
}
