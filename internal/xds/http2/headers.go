package http2

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	xhttp2 "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// headers takes a whole header block: a new stream's, or the trailers of one.
func (c *conn) headers(f *xhttp2.MetaHeadersFrame) error {
	if f.StreamID%2 == 0 {
		return protocolError()
	}
	if st := c.find(f.StreamID); st != nil {
		return c.requestTrailers(st, f)
	}
	if f.StreamID <= c.lastID {
		return xhttp2.ConnectionError(xhttp2.ErrCodeStreamClosed)
	}
	c.lastID = f.StreamID
	if err := c.bother(); err != nil {
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
	if !c.admit() {
		return xhttp2.StreamError{StreamID: f.StreamID, Code: xhttp2.ErrCodeRefusedStream}
	}
	return c.open(f, &r)
}

// admit tells whether the connection takes one more stream.
func (c *conn) admit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parting == nil && len(c.streams) < int(c.mostStreams()) && (c.leaving != told || c.lastID <= c.goneAt)
}

// request is what the header block of a request says.
type request struct {
	method, scheme, path string
	contentType          string
	encoding             string // of compressed messages
	timeout              string
	authorization        string
	length               int64 // -1: not said
}

// readRequest reads the fields of a request; false: it is malformed as HTTP/2 has it. The
// Framer has looked at names, values and the order of pseudo fields.
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

// isGRPC tells application/grpc, with or without a message format, from other types.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(contentType), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// open begins a stream, and answers at once where it is refused.
func (c *conn) open(f *xhttp2.MetaHeadersFrame, r *request) error {
	st := &Stream{conn: c, id: f.StreamID, path: r.path, credit: streamWindow, expect: r.length, remoteClosed: f.StreamEnded()}
	if st.remoteClosed && st.expect > 0 {
		return xhttp2.StreamError{StreamID: st.id, Code: xhttp2.ErrCodeProtocol}
	}
	c.mu.Lock()
	st.window = c.initial
	c.streams = append(c.streams, st)
	c.mu.Unlock()
	if code, text := c.refusal(f, r); code != 0 {
		c.refuse(st, code, text)
		return nil
	}
	if s := c.begunWith(st, r); s != nil {
		c.finish(st, s)
		return nil
	}
	st.authorization = r.authorization
	st.receiver = c.server.methods[r.path](st)
	st.authorization = ""
	if st.remoteClosed {
		c.heardAll(st)
	}
	return nil
}

// refusal is what is wrong with a request before it is one of gRPC: an HTTP status.
func (c *conn) refusal(f *xhttp2.MetaHeadersFrame, r *request) (code int, text string) {
	switch {
	case f.Truncated:
		return http.StatusRequestHeaderFieldsTooLarge, "the request's header is too large\n"
	case r.method != http.MethodPost:
		return http.StatusMethodNotAllowed, "this is a gRPC server: only POST is of use here\n"
	case !isGRPC(r.contentType):
		return http.StatusUnsupportedMediaType, "this is a gRPC server: the content-type must be application/grpc\n"
	}
	return 0, ""
}

// begunWith is what is wrong with a request as one of gRPC; nil: nothing.
func (c *conn) begunWith(st *Stream, r *request) *Status {
	if r.timeout != "" {
		d, ok := parseTimeout(r.timeout)
		if !ok {
			return statusf(Internal, "malformed grpc-timeout %q", r.timeout)
		}
		c.mu.Lock()
		if d < longest {
			c.expire(st, time.Now().Add(d))
		}
		c.mu.Unlock()
	}
	if r.encoding != "" && r.encoding != "identity" {
		return statusf(Unimplemented, "compression %q is not supported", r.encoding)
	}
	if c.server.methods[r.path] == nil {
		return statusf(Unimplemented, "unknown method %q; there are %s", r.path, strings.Join(c.server.paths(), " "))
	}
	return nil
}

// refuse answers with an HTTP status. The rest of the request may come for a while and is
// dropped.
func (c *conn) refuse(st *Stream, code int, text string) {
	head := appendField(appendStatus(nil, code), "content-type", "text/plain; charset=utf-8")
	if code == http.StatusMethodNotAllowed {
		head = appendField(head, "allow", http.MethodPost)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	st.head, st.ending = head, true
	c.expire(st, time.Now().Add(refusedTime))
	st.queue = []outgoing{{parts: [][]byte{[]byte(text)}, left: len(text)}}
	c.queue(st)
	c.pump()
}

// requestTrailers takes the header block that ends a request.
func (c *conn) requestTrailers(st *Stream, f *xhttp2.MetaHeadersFrame) error {
	switch {
	case st.remoteClosed:
		return xhttp2.StreamError{StreamID: st.id, Code: xhttp2.ErrCodeStreamClosed}
	case !f.StreamEnded() || len(f.PseudoFields()) > 0 || st.expect > 0:
		return xhttp2.StreamError{StreamID: st.id, Code: xhttp2.ErrCodeProtocol}
	}
	c.halfClose(st)
	return nil
}
