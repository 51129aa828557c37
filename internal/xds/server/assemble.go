package server

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/wire"
	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// message is an encoded response: a head of its own and parts that are shared.
type message struct {
	parts [][]byte
	size  int
}

func newMessage(parts [][]byte) message {
	m := message{parts: parts}
	for _, p := range parts {
		m.size += len(p)
	}
	return m
}

// Field numbers of the responses.
const (
	systemVersion, versionInfo = 1, 1
	typeURL, nonce             = 4, 5
	removedResources           = 6
)

// assemble appends the messages of responses. Only the heads are encoded, one behind the other; their fields may
// stand before the resources, as protobuf leaves the order free.
func assemble(into []message, p ledger.Protocol, responses []ledger.Response) []message {
	n := 0
	for i := range responses {
		n += headSize(&responses[i])
	}
	heads, parts := make([]byte, 0, n), make([][]byte, 0, 2*len(responses))
	for i := range responses {
		r, head, first := &responses[i], len(heads), len(parts)
		heads = appendHead(heads, p, r)
		parts = appendParts(append(parts, heads[head:len(heads):len(heads)]), p, r)
		into = append(into, newMessage(parts[first:len(parts):len(parts)]))
	}
	return into
}

// headSize is what appendHead appends, or a little more.
func headSize(r *ledger.Response) int {
	n := 64 + len(r.Type.URL()) + len(r.Version)
	for _, name := range r.Removed {
		n += len(name) + 4
	}
	return n
}

func appendHead(head []byte, p ledger.Protocol, r *ledger.Response) []byte {
	if p == ledger.Sotw {
		head = wire.AppendField(head, versionInfo, r.Version)
	} else {
		head = appendRevision(head, systemVersion, r.Newest)
	}
	head = wire.AppendField(head, typeURL, r.Type.URL())
	head = appendNumber(head, nonce, r.Nonce)
	for _, name := range r.Removed {
		head = wire.AppendField(head, removedResources, name)
	}
	return head
}

func appendParts(parts [][]byte, p ledger.Protocol, r *ledger.Response) [][]byte {
	for _, part := range r.Parts {
		switch {
		case part == nil:
		case p == ledger.Sotw:
			parts = append(parts, part.Sotw())
		default:
			parts = append(parts, part.Delta())
		}
	}
	return parts
}

// appendNumber appends a decimal number as a string.
func appendNumber(b []byte, num protowire.Number, n uint64) []byte {
	var digits [20]byte
	return wire.AppendField(b, num, strconv.AppendUint(digits[:0], n, 10))
}

func appendRevision(b []byte, num protowire.Number, r model.Revision) []byte {
	return appendNumber(b, num, uint64(r))
}
