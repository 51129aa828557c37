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

func (m *message) add(b []byte) {
	if len(b) > 0 {
		m.parts = append(m.parts, b)
		m.size += len(b)
	}
}

// Field numbers of the responses.
const (
	systemVersion, versionInfo = 1, 1
	typeURL, nonce             = 4, 5
	removedResources           = 6
)

// assemble makes the message of a response. Only the head is encoded; its fields may
// stand before the resources, as protobuf leaves the order free.
func assemble(p ledger.Protocol, r *ledger.Response) message {
	url := r.Type.URL()
	n := 64 + len(url) + len(r.Version)
	for _, name := range r.Removed {
		n += len(name) + 4
	}
	head := make([]byte, 0, n)
	if p == ledger.Sotw {
		head = wire.AppendField(head, versionInfo, r.Version)
	} else {
		head = appendRevision(head, systemVersion, r.Newest)
	}
	head = wire.AppendField(head, typeURL, url)
	head = appendNumber(head, nonce, r.Nonce)
	for _, name := range r.Removed {
		head = wire.AppendField(head, removedResources, name)
	}
	m := message{parts: make([][]byte, 0, 2)}
	m.add(head)
	for _, part := range r.Parts {
		switch {
		case part == nil:
		case p == ledger.Sotw:
			m.add(part.Sotw())
		default:
			m.add(part.Delta())
		}
	}
	return m
}

// appendNumber appends a decimal number as a string.
func appendNumber(b []byte, num protowire.Number, n uint64) []byte {
	var digits [20]byte
	return wire.AppendField(b, num, strconv.AppendUint(digits[:0], n, 10))
}

func appendRevision(b []byte, num protowire.Number, r model.Revision) []byte {
	return appendNumber(b, num, uint64(r))
}
