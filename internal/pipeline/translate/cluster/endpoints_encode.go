package cluster

import (
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/xds/wire"
)

// EncodeEndpoints returns the bytes of the message that Endpoints returns. A service may have thousands of
// endpoints, and each change of one encodes all of them again. So there is no message for each: its address is
// written here, and the rest is encoded once for all endpoints that share it.
func EncodeEndpoints(v *ir.Endpoints) ([]byte, error) {
	e := endpointsEncoder{scale: scaleOf(v.Localities), marksPlaintext: v.MarksPlaintext, traits: map[ir.Endpoint][]byte{}}
	out := e.message(nil, &endpointv3.ClusterLoadAssignment{ClusterName: v.Cluster})
	for i := range v.Localities {
		e.locality(&v.Localities[i])
		out = wire.AppendField(out, assignmentEndpoints, e.inLocality)
	}
	return out, e.err
}

// Field numbers of ClusterLoadAssignment, LocalityLbEndpoints, LbEndpoint, Endpoint, Address and SocketAddress.
const (
	assignmentEndpoints             = 2
	localityEndpoints               = 2
	lbEndpoint                      = 1
	endpointAddress                 = 1
	addressSocket                   = 1
	socketAddressText, socketNumber = 2, 3
)

// endpointsEncoder encodes one assignment. Fields of a message may be encoded separately and concatenated. The
// bytes are those of the whole message if fields are in the order of their numbers, with those of a oneof last.
type endpointsEncoder struct {
	scale          scale
	marksPlaintext bool
	err            error // the first; the bytes are invalid then

	traits map[ir.Endpoint][]byte // by the endpoint without its address and port
	last   ir.Endpoint            // the last key of traits: successive endpoints usually share it
	ofLast []byte                 // its value; nil: none yet

	inLocality, inEndpoint []byte // buffers of the messages in progress
}

func (e *endpointsEncoder) message(b []byte, m proto.Message) []byte {
	if e.err == nil {
		b, e.err = envoyproto.Deterministic.MarshalAppend(b, m)
	}
	return b
}

// locality writes inLocality.
func (e *endpointsEncoder) locality(l *ir.LocalityEndpoints) {
	e.inLocality = e.message(e.inLocality[:0], &endpointv3.LocalityLbEndpoints{Locality: localityName(l.Locality)})
	sum := uint32(0)
	for i := range l.Endpoints {
		if v := &l.Endpoints[i]; isReachable(v.Address) {
			sum += e.scale.of(v.Weight)
			e.endpoint(v)
			e.inLocality = wire.AppendField(e.inLocality, localityEndpoints, e.inEndpoint)
		}
	}
	e.inLocality = e.message(e.inLocality, &endpointv3.LocalityLbEndpoints{
		LoadBalancingWeight: e.scale.ofLocality(l, sum), Priority: l.Priority,
	})
}

// endpoint writes inEndpoint.
func (e *endpointsEncoder) endpoint(v *ir.Endpoint) {
	e.inEndpoint = append(e.inEndpoint[:0], e.traitsOf(v)...)
	if envoyproto.UnixPath(v.Address) == "" {
		e.inEndpoint = appendSocket(e.inEndpoint, v.Address, v.Port)
		return
	}
	at := &endpointv3.Endpoint{Address: envoyproto.Address(v.Address, v.Port)}
	e.inEndpoint = e.message(e.inEndpoint, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: at}})
}

// traitsOf returns the bytes of everything but the address of an endpoint.
func (e *endpointsEncoder) traitsOf(v *ir.Endpoint) []byte {
	key := *v
	key.Address, key.Port = "", 0
	if e.ofLast != nil && key == e.last {
		return e.ofLast
	}
	b, known := e.traits[key]
	if !known {
		m := &endpointv3.LbEndpoint{}
		setTraits(m, e.scale.of(v.Weight), endpointMetadata(v, e.marksPlaintext))
		b = e.message([]byte{}, m)
		e.traits[key] = b
	}
	e.last, e.ofLast = key, b
	return b
}

// appendSocket appends the field host_identifier of an LbEndpoint with a socket address.
func appendSocket(b []byte, address string, port uint32) []byte {
	socket := wire.SizeField(socketAddressText, len(address)) + protowire.SizeTag(socketNumber) + protowire.SizeVarint(uint64(port))
	inAddress := wire.SizeField(addressSocket, socket)
	b = wire.AppendHeader(b, lbEndpoint, wire.SizeField(endpointAddress, inAddress))
	b = wire.AppendHeader(b, endpointAddress, inAddress)
	b = wire.AppendHeader(b, addressSocket, socket)
	b = wire.AppendField(b, socketAddressText, address)
	return protowire.AppendVarint(protowire.AppendTag(b, socketNumber, protowire.VarintType), uint64(port))
}
