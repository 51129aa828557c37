package server

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/wire"
)

// Requests are scanned and not unmarshalled. An ACK of 60 bytes then needs no memory, and a node
// that Envoy repeats in each request (61 KB) costs no more than skipping it.

// request is a parsed request and its node.
type request struct {
	ledger.Request
	node []byte // encoded; empty: none
}

// reset clears the request, and keeps its memory.
func (r *request) reset() {
	clear(r.Subscribe)
	clear(r.Unsubscribe)
	clear(r.Initial)
	clear(r.Names)
	*r = request{Request: ledger.Request{Subscribe: r.Subscribe[:0], Unsubscribe: r.Unsubscribe[:0], Initial: r.Initial[:0], Names: r.Names[:0]}}
}

// parse scans a request of a protocol. The request points into b.
func (r *request) parse(p ledger.Protocol, b []byte) error {
	r.reset()
	field := r.deltaField
	if p == ledger.Sotw {
		field = r.sotwField
	}
	return wire.Fields(b, field)
}

// initialVersions is the field initial_resource_versions of DeltaDiscoveryRequest.
const initialVersions = 5

// Field numbers of DeltaDiscoveryRequest.
func (r *request) deltaField(num protowire.Number, v []byte) error {
	switch num {
	case 1:
		r.node = v
	case 2:
		r.TypeURL = v
	case 3:
		return appendName(&r.Subscribe, v)
	case 4:
		return appendName(&r.Unsubscribe, v)
	case initialVersions:
		return r.initial(v)
	case 6:
		r.Nonce = v
	case 7:
		return r.error(v)
	}
	return nil
}

// Field numbers of DiscoveryRequest.
func (r *request) sotwField(num protowire.Number, v []byte) error {
	switch num {
	case 2:
		r.node = v
	case 3:
		return appendName(&r.Names, v)
	case 4:
		r.TypeURL = v
	case 5:
		r.Nonce = v
	case 6:
		return r.error(v)
	}
	return nil
}

func appendName(to *[][]byte, v []byte) error {
	if !utf8.Valid(v) {
		return fmt.Errorf("resource name %q is not UTF-8", v)
	}
	*to = append(*to, v)
	return nil
}

// initial parses an entry of initial_resource_versions.
func (r *request) initial(b []byte) error {
	var nv ledger.NameVersion
	err := wire.Fields(b, func(num protowire.Number, v []byte) error {
		switch num {
		case 1:
			nv.Name = v
		case 2:
			nv.Version = v
		}
		return nil
	})
	r.Initial = append(r.Initial, nv)
	return err
}

// error parses a google.rpc.Status.
func (r *request) error(b []byte) error {
	e := &ledger.Error{}
	r.Error = e
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch {
		case num == 1 && typ == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			e.Code, b = int32(v), b[n:]
		case num == 2 && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			e.Message, b = string(v), b[n:]
		default:
			n := protowire.ConsumeFieldValue(num, typ, b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
		}
	}
	return nil
}
