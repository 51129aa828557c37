package server

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/wire"
)

// http2Receiver receives the requests of a stream on package http2.
type http2Receiver struct{ st *stream }

// Receive implements http2.Receiver: the ledger processes a request. EndBatch answers it.
func (r http2Receiver) Receive(b []byte) error {
	if err := r.st.handle(b); err != nil {
		return http2Status(err)
	}
	r.st.transport.(http2Transport).stream.Trust()
	return nil
}

// IsInline implements http2.InlineReceiver. The first request binds the proxy, and a request that lists
// resources may add route shards: these may wait.
func (r http2Receiver) IsInline(b []byte) bool {
	if r.st.proxy == nil {
		return false
	}
	for len(b) > 0 {
		num, _, rest, err := wire.Next(b)
		if err != nil || num == initialVersions && r.st.protocol == ledger.Delta {
			return false
		}
		b = rest
	}
	return true
}

// requests is a pool: between requests a stream needs none.
var requests = sync.Pool{New: func() any { return new(request) }}

// handle passes one request to the ledger. The caller must call answer, or handle for another
// request.
func (st *stream) handle(b []byte) error {
	r := requests.Get().(*request)
	defer r.giveBack()
	if err := r.parse(st.protocol, b); err != nil {
		return status.Errorf(codes.InvalidArgument, "the request is not a valid %s discovery request: %v", st.protocol, err)
	}
	if st.asks(r) {
		return st.answerQuestion(r)
	}
	if st.proxy == nil {
		if err := st.server.open(st, r.node); err != nil {
			return err
		}
	}
	if err := st.addKnownShards(r); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.moved = true
	if r.Error != nil {
		st.reportNACK(r)
		st.dateRefusals() // forgets those that were resolved since the last NACK
		defer st.dateRefusals()
	}
	served := st.ledger.HandleRenamed(&r.Request, st.renames(r.TypeURL))
	if err := st.ledgerError(); err != nil {
		return err
	}
	st.arrive()
	if !served {
		st.server.log.Debug("type is not served", "proxy", st.proxy.ID, "type", string(r.TypeURL))
		return nil
	}
	st.learn(&r.Request)
	return nil
}

// ledgerError returns the status of a stream whose ledger must end it. The stream's lock is held.
func (st *stream) ledgerError() error {
	err := st.ledger.Err()
	var many *ledger.TooManyNamesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &many):
		return Exhausted("%s: %v", st.proxy, err)
	}
	return status.Error(codes.Unavailable, err.Error())
}

// EndBatch implements http2.BatchReceiver: one step answers all requests that arrived together.
func (r http2Receiver) EndBatch() error { return http2Status(r.st.answer()) }

// answer sends what may be sent after requests.
func (st *stream) answer() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ledger == nil {
		return nil // the only request was refused
	}
	if err := st.ledgerError(); err != nil {
		return err // package http2 ends the batch also if one of its requests was refused
	}
	st.delivery.clearAnswered()
	st.step()
	return st.ledgerError()
}

// End implements http2.Receiver.
func (r http2Receiver) End() { r.st.end() }

// pullTransport is a transport from which messages are read, as from grpc-go.
type pullTransport interface {
	transport
	// receive returns the next message; free returns its bytes.
	receive() (b []byte, free func(), err error)
}

// pull reads and serves one stream until it ends.
func (s *Server) pull(p ledger.Protocol, port *Port, t pullTransport, asked bool) error {
	st := s.newStream(p, port, t)
	st.asked = asked
	defer st.end()
	for {
		b, free, err := t.receive()
		if errors.Is(err, io.EOF) {
			return nil // the peer has ended its side
		}
		if err != nil {
			return err
		}
		err = st.handle(b)
		if err == nil {
			err = st.answer()
		}
		free()
		if err != nil {
			return err
		}
	}
}

// Requests are scanned and not unmarshalled. An ACK of 60 bytes then needs no memory, and a node
// that Envoy repeats in each request (61 KB) costs no more than skipping it.

// request is a parsed request and its node.
type request struct {
	ledger.Request
	node    []byte // encoded; empty: none
	entries int    // names so far
}

// reset clears the request, and keeps its memory.
func (r *request) reset() {
	clear(r.Subscribe)
	clear(r.Unsubscribe)
	clear(r.Initial)
	clear(r.Names)
	*r = request{Request: ledger.Request{Subscribe: r.Subscribe[:0], Unsubscribe: r.Unsubscribe[:0], Initial: r.Initial[:0], Names: r.Names[:0]}}
}

// maxPooled is how many names of one list the requests in the pool have room for. Others are those of proxies that connect.
const maxPooled = 1 << 10

// giveBack returns the request to the pool, unless it is large.
func (r *request) giveBack() {
	if r.reset(); max(cap(r.Subscribe), cap(r.Unsubscribe), cap(r.Initial), cap(r.Names)) <= maxPooled {
		requests.Put(r)
	}
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
		return r.appendName(&r.Subscribe, v)
	case 4:
		return r.appendName(&r.Unsubscribe, v)
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
		return r.appendName(&r.Names, v)
	case 4:
		r.TypeURL = v
	case 5:
		r.Nonce = v
	case 6:
		return r.error(v)
	}
	return nil
}

// maxNameLength bounds the bytes of a resource's name. Names of Secrets may contain two paths.
const maxNameLength = 16 << 10

// maxEntries bounds the names of a request, with those of initial_resource_versions, before anything else is known about
// it. It is four times the names that a stream may subscribe to, as a proxy lists what it has of a type, whatever that is. So
// many names of the usual length, with their versions, have 28 MB. They need 12 MB more, at 48 bytes each.
const maxEntries = 1 << 18

// count counts one more name.
func (r *request) count() error {
	if r.entries++; r.entries > maxEntries {
		return fmt.Errorf("it has more than %d resource names", maxEntries)
	}
	return nil
}

func (r *request) appendName(to *[][]byte, v []byte) error {
	if err := r.count(); err != nil {
		return err
	}
	if len(v) > maxNameLength {
		return fmt.Errorf("a resource name has %d bytes: the limit is %d", len(v), maxNameLength)
	}
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
	switch {
	case err != nil:
		return err
	case len(nv.Name) == 0:
		return errors.New("initial_resource_versions has an entry without a name")
	}
	r.Initial = append(r.Initial, nv)
	return r.count()
}

// maxErrorEnd bounds the bytes that are kept of an error's message at its beginning, and as many at its end. What Envoy says
// about all resources of a response is shorter.
const maxErrorEnd = 32 << 10

// errorText returns a copy of an error's message. It leaves out the middle of a long one.
func errorText(b []byte) string {
	if len(b) <= 2*maxErrorEnd {
		return strings.ToValidUTF8(string(b), "\uFFFD")
	}
	return strings.ToValidUTF8(string(b[:maxErrorEnd])+" ... "+string(b[len(b)-maxErrorEnd:]), "\uFFFD")
}

// error parses a google.rpc.Status. It replaces bytes of the message that are not UTF-8, which reports cannot contain.
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
			e.Message, b = errorText(v), b[n:]
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
