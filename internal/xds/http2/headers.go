package http2

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// headers processes a complete header block: of a new stream, or trailers.
func (fr *frameReader) headers(f *xhttp2.MetaHeadersFrame) error {
	if f.StreamID%2 == 0 {
		return protocolError()
	}
	if st := fr.find(f.StreamID); st != nil {
		return fr.requestTrailers(st, f)
	}
	if f.StreamID <= fr.lastID {
		return xhttp2.ConnectionError(xhttp2.ErrCodeStreamClosed)
	}
	fr.lastID = f.StreamID
	if err := fr.spendBudget(); err != nil {
		return err
	}
	malformed := xhttp2.StreamError{StreamID: f.StreamID, Code: xhttp2.ErrCodeProtocol}
	if f.HasPriority() && f.Priority.StreamDep == f.StreamID {
		return malformed
	}
	r, ok := readRequest(f.Fields)
	if !ok && !f.Truncated {
		return malformed
	}
	if !fr.admit() {
		return xhttp2.StreamError{StreamID: f.StreamID, Code: xhttp2.ErrCodeRefusedStream}
	}
	return fr.open(f, &r)
}

// admit reports whether the connection accepts one more stream.
func (fr *frameReader) admit() bool {
	fr.mu.Lock()
	defer fr.mu.Unlock()
	return fr.lifetime.parting == nil && len(fr.streams) < int(fr.mostStreams()) && (fr.lifetime.leaving != sentLastGoAway || fr.lastID <= fr.lifetime.goneAt)
}

// request has the header fields of a request.
type request struct {
	method, scheme, path string
	contentType          string
	encoding             string // of compressed messages
	timeout              string
	authorization        string
	length               int64 // -1: absent
}

// readRequest reads the fields of a request. It returns false if the request is malformed HTTP/2.
// The Framer has checked names, values and the order of pseudo fields.
func readRequest(fields []hpack.HeaderField) (request, bool) {
	r := request{length: -1}
	for _, f := range fields {
		if !r.field(f.Name, f.Value) {
			return r, false
		}
	}
	return r, r.method != "" && r.scheme != "" && r.path != ""
}

func (r *request) field(name, value string) bool {
	switch name {
	case ":method":
		r.method = value
	case ":scheme":
		r.scheme = value
	case ":path":
		r.path = value
	case ":status", ":protocol":
		return false
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return false
	case "te":
		return value == "trailers"
	case "content-type":
		r.contentType = value
	case "grpc-encoding":
		r.encoding = value
	case "grpc-timeout":
		r.timeout = value
	case "authorization":
		r.authorization = value
	case "content-length":
		n, err := strconv.ParseUint(value, 10, 62)
		if err != nil || r.length >= 0 && r.length != int64(n) { //nolint:gosec // it has 62 bits
			return false
		}
		r.length = int64(n) //nolint:gosec // as above
	}
	return true
}

// isGRPC reports whether a type is application/grpc, with or without a message format.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(contentType), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// open begins a stream, and answers at once if the request is refused.
func (fr *frameReader) open(f *xhttp2.MetaHeadersFrame, r *request) error {
	st := &Stream{conn: fr.conn, id: f.StreamID, path: r.path, credit: streamWindow, expect: r.length, remoteClosed: f.StreamEnded()}
	if st.remoteClosed && st.expect > 0 {
		return xhttp2.StreamError{StreamID: st.id, Code: xhttp2.ErrCodeProtocol}
	}
	fr.mu.Lock()
	st.window = fr.output.initial
	fr.streams = append(fr.streams, st)
	fr.firstRequest.opened(st)
	fr.mu.Unlock()
	if code, text := fr.refusal(f, r); code != 0 {
		fr.refuse(st, code, text)
		return nil
	}
	if s := fr.begunWith(st, r); s != nil {
		fr.finish(st, s)
		return nil
	}
	st.authorization = r.authorization
	st.receiver = fr.server.methods[r.path](st)
	st.authorization = ""
	if st.remoteClosed {
		fr.remoteEnded(st)
	}
	return nil
}

// refusal returns the HTTP status for a request that is not gRPC; 0 if it may be.
func (fr *frameReader) refusal(f *xhttp2.MetaHeadersFrame, r *request) (code int, text string) {
	switch {
	case f.Truncated:
		return http.StatusRequestHeaderFieldsTooLarge, "the request's header is too large\n"
	case r.method != http.MethodPost:
		return http.StatusMethodNotAllowed, "this is a gRPC server: use POST\n"
	case !isGRPC(r.contentType):
		return http.StatusUnsupportedMediaType, "this is a gRPC server: the content-type must be application/grpc\n"
	}
	return 0, ""
}

// begunWith returns what is wrong with a gRPC request; nil: nothing.
func (fr *frameReader) begunWith(st *Stream, r *request) *Status {
	if r.timeout != "" {
		d, ok := parseTimeout(r.timeout)
		if !ok {
			return statusf(Internal, "malformed grpc-timeout %q", r.timeout)
		}
		fr.mu.Lock()
		if d < longest {
			fr.expire(st, time.Now().Add(d))
		}
		fr.mu.Unlock()
	}
	if r.encoding != "" && r.encoding != "identity" {
		return statusf(Unimplemented, "compression %q is not supported", r.encoding)
	}
	if fr.server.methods[r.path] == nil {
		return statusf(Unimplemented, "unknown method %q; there are %s", r.path, strings.Join(fr.server.paths(), " "))
	}
	return nil
}

// refuse answers with an HTTP status. The rest of the request may arrive for a while and is
// dropped.
func (fr *frameReader) refuse(st *Stream, code int, text string) {
	head := appendField(appendStatus(nil, code), "content-type", "text/plain; charset=utf-8")
	if code == http.StatusMethodNotAllowed {
		head = appendField(head, "allow", http.MethodPost)
	}
	fr.mu.Lock()
	defer fr.mu.Unlock()
	st.head, st.ending = head, true
	fr.expire(st, time.Now().Add(refusedTime))
	st.queue = []outgoing{{parts: [][]byte{[]byte(text)}, left: len(text)}}
	fr.output.queue(st)
	fr.output.pump()
}

// requestTrailers processes the header block that ends a request.
func (fr *frameReader) requestTrailers(st *Stream, f *xhttp2.MetaHeadersFrame) error {
	switch {
	case st.remoteClosed:
		return xhttp2.StreamError{StreamID: st.id, Code: xhttp2.ErrCodeStreamClosed}
	case !f.StreamEnded() || len(f.PseudoFields()) > 0 || st.expect > 0:
		return xhttp2.StreamError{StreamID: st.id, Code: xhttp2.ErrCodeProtocol}
	}
	fr.halfClose(st)
	return nil
}
