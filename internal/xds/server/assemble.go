package server

import (
	"slices"
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/wire"
)

// message is an encoded response: a head, and parts that streams share.
type message = [][]byte

// sizeOf returns the number of bytes of a message.
func sizeOf(m message) (n int) {
	for _, p := range m {
		n += len(p)
	}
	return n
}

// Field numbers of the responses.
const (
	systemVersion, versionInfo = 1, 1
	typeURL, nonce             = 4, 5
	removedResources           = 6
)

// assembly has the messages of a step's responses. Their heads are in one buffer, which is reused
// if the transport keeps nothing.
type assembly struct {
	messages []message
	heads    []byte
	parts    [][]byte
}

var assemblies = sync.Pool{New: func() any { return new(assembly) }}

// release returns an assembly to the pool. Nothing may use it any more.
func (a *assembly) release() {
	if cap(a.heads) > keepHeads {
		return
	}
	clear(a.messages)
	clear(a.parts)
	assemblies.Put(a)
}

// keepHeads is the largest buffer for heads that is reused: heads with many removals are long.
const keepHeads = 4 << 10

// assemble encodes responses. Only the heads are encoded, one after the other. Their fields may
// precede the resources, as protobuf does not fix an order. as may be nil.
func assemble(p ledger.Protocol, responses []ledger.Response, as *naming) *assembly {
	n := 0
	for i := range responses {
		n += headSize(&responses[i], as)
	}
	a := assemblies.Get().(*assembly)
	a.messages = a.messages[:0]
	heads, parts := slices.Grow(a.heads[:0], n), slices.Grow(a.parts[:0], 2*len(responses))
	for i := range responses {
		r, head, first := &responses[i], len(heads), len(parts)
		heads = appendHead(heads, p, r, as)
		parts = appendParts(append(parts, heads[head:len(heads):len(heads)]), p, r, as)
		a.messages = append(a.messages, parts[first:len(parts):len(parts)])
	}
	a.heads, a.parts = heads, parts
	return a
}

// headSize returns the size of what appendHead appends, or a little more.
func headSize(r *ledger.Response, as *naming) int {
	n := 64 + len(r.Type.URL()) + len(r.Version)
	for _, name := range as.removed(r) {
		n += len(name) + 4
	}
	return n
}

func appendHead(head []byte, p ledger.Protocol, r *ledger.Response, as *naming) []byte {
	if p == ledger.Sotw {
		head = wire.AppendField(head, versionInfo, r.Version)
	} else {
		head = appendRevision(head, systemVersion, r.Newest)
	}
	head = wire.AppendField(head, typeURL, r.Type.URL())
	head = appendNumber(head, nonce, r.Nonce)
	for _, name := range as.removed(r) {
		head = wire.AppendField(head, removedResources, name)
	}
	return head
}

func appendParts(parts [][]byte, p ledger.Protocol, r *ledger.Response, as *naming) [][]byte {
	for _, part := range r.Parts {
		switch {
		case part == nil:
		case as.renames(r):
			parts = as.appendEndpoints(parts, part)
		case as.asks(r):
			parts = appendAsked(parts, part)
		case as.warms(r):
			parts = as.appendScopes(parts, part)
		case p == ledger.Sotw:
			parts = append(parts, part.Sotw())
		default:
			parts = append(parts, part.Delta())
		}
	}
	return as.appendAbsent(parts, r)
}

// appendNumber appends a decimal number as a string field.
func appendNumber(b []byte, num protowire.Number, n uint64) []byte {
	var digits [20]byte
	return wire.AppendField(b, num, strconv.AppendUint(digits[:0], n, 10))
}

func appendRevision(b []byte, num protowire.Number, r model.Revision) []byte {
	return appendNumber(b, num, uint64(r))
}
