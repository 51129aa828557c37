package fleet

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/moonsail/moonsail/internal/xds/wire"
)

// Field numbers of DeltaDiscoveryRequest.
const (
	fieldNode, fieldType, fieldSubscribe, fieldUnsubscribe, fieldInitial, fieldNonce = 1, 2, 3, 4, 5, 6
)

// request is a DeltaDiscoveryRequest that is being encoded.
type request []byte

// requestRoom is enough for most requests with one or two names, in bytes.
const requestRoom = 256

func newRequest(k Kind) request { return append(make(request, 0, requestRoom), heads[k]...) }

// heads are the beginnings of requests: ACKs without their nonces.
var heads = func() (out [Kinds]request) {
	for k := range Kinds {
		out[k] = request(nil).text(fieldType, URLs[k])
	}
	return out
}()

// ack queues an ACK, and returns its size.
func (h *conn) ack(k Kind, nonce []byte) int64 {
	head := heads[k]
	n := len(head) + wire.SizeField(fieldNonce, len(nonce))
	h.begin(n)
	h.body = append(h.body, head...)
	h.body = request(h.body).bytes(fieldNonce, nonce)
	return int64(n)
}

func (r request) text(field protowire.Number, s string) request {
	return wire.AppendField(r, field, s)
}

func (r request) bytes(field protowire.Number, b []byte) request {
	return wire.AppendField(r, field, b)
}

// initial adds an entry of initial_resource_versions.
func (r request) initial(name, version string) request {
	const key, value = 1, 2
	size := wire.SizeField(key, len(name)) + wire.SizeField(value, len(version))
	r = wire.AppendHeader(r, fieldInitial, size)
	return r.text(key, name).text(value, version)
}

// response is what a proxy reads of a DeltaDiscoveryResponse.
type response struct {
	kind      Kind
	known     bool
	nonce     []byte
	resources []received
}

// Field numbers of DeltaDiscoveryResponse and of its Resource.
const (
	respResources, respType, respNonce, respRemoved = 2, 4, 5, 6
	resVersion, resAny, resName                     = 1, 2, 3
)

func (r *response) parse(b []byte) bool {
	*r = response{resources: r.resources[:0]}
	for len(b) > 0 {
		num, v, rest, err := wire.Next(b)
		if err != nil {
			return false
		}
		switch b = rest; num {
		case respResources:
			r.resources = append(r.resources, received{})
			if !r.resources[len(r.resources)-1].parse(v) {
				return false
			}
		case respRemoved:
			r.resources = append(r.resources, received{name: v, removed: true})
		case respType:
			r.kind, r.known = kindOf(v)
		case respNonce:
			r.nonce = v
		}
	}
	return true
}

// parse reads a Resource.
func (in *received) parse(b []byte) bool {
	for len(b) > 0 {
		num, v, rest, err := wire.Next(b)
		if err != nil {
			return false
		}
		switch b = rest; num {
		case resVersion:
			in.version = v
		case resAny:
			in.any = v
		case resName:
			in.name = v
		}
	}
	return true
}
