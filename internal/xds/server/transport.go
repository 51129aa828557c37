package server

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/xds/http2"
	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// transport sends the messages of a stream. http2.go and grpc.go implement it.
type transport interface {
	// send sends messages, together if the transport supports that. It may block, until the stream
	// ends, only if at least window bytes were sent that the peer has not answered. Calls do not
	// overlap. If it returns kept false, the heads and the lists of parts may be reused.
	send(messages []message) (kept bool, err error)
	// window is how many bytes a stream accepts without blocking; 0: it never blocks, and queues
	// what the peer does not accept.
	window() int
	// pending returns the number of queued messages.
	pending() int
	// present returns a context that ends with the stream or its connection, and with the server.
	// It must be canceled before the request is answered.
	present() (context.Context, context.CancelFunc)
	peer() string
	caller() *Peer
}

// sendMargin is for the framing of messages.
const sendMargin = 1 << 10

// puller is a transport from which messages are read.
type puller interface {
	transport
	// receive returns the next message; free returns its bytes.
	receive() (b []byte, free func(), err error)
}

// newStream begins a stream. The caller passes requests to take, one after the other, and then
// calls end.
func (s *Server) newStream(p ledger.Protocol, port *Port, t transport) *stream {
	st := &stream{server: s, port: port, transport: t, protocol: p, connected: time.Now()}
	st.account.stream, st.delivery.stream = st, st
	st.mu.then = st.catchUp
	st.inbox.published, st.account.pendingRevisions = st.inbox.room[:0], st.account.room[:0]
	return st
}

// pull serves one stream until it ends.
func (s *Server) pull(p ledger.Protocol, port *Port, t puller) error {
	st := s.newStream(p, port, t)
	defer st.end()
	for {
		b, free, err := t.receive()
		if errors.Is(err, io.EOF) {
			return nil // the peer has ended its side
		}
		if err != nil {
			return err
		}
		err = st.take(b)
		free()
		if err != nil {
			return err
		}
	}
}

// Transport is an implementation of gRPC.
type Transport string

// The transports.
const (
	// TransportGRPC is grpc-go.
	TransportGRPC Transport = "grpc"
	// TransportHTTP2 is package http2, the default.
	TransportHTTP2 Transport = "http2"
)

// Carrier accepts connections and serves their streams.
type Carrier interface {
	// Serve accepts connections until Stop is called, or until it fails. It closes the listener.
	Serve(net.Listener) error
	// GracefulStop accepts no new connections, asks peers to connect elsewhere, ends their streams
	// with UNAVAILABLE, and waits for calls in progress. When ctx ends it calls Stop.
	GracefulStop(ctx context.Context)
	// Stop cuts all streams, and waits for their end.
	Stop()
}

// ending is the status of streams that end with their carrier.
var ending = status.Error(codes.Unavailable, "this control plane stops: connect again, or to another one")

// http2Carrier is a carrier of package http2.
type http2Carrier struct{ *http2.Server }

func (c http2Carrier) GracefulStop(ctx context.Context) {
	c.Server.GracefulStop(ctx, toHTTP2(status.Convert(ending)))
}

// Carry returns a carrier for the service at a port.
func (s *Server) Carry(t Transport, port Port) Carrier {
	port.Methods = s.methods(port)
	if t != TransportGRPC {
		o := s.opts.http2Options()
		o.TLS, o.Log, o.LimitUnauthenticated = port.TLS, s.log, port.Authorize != nil
		o.Yield = s.yield
		return http2Carrier{http2.New(s.http2Methods(&port), o)}
	}
	c := &grpcCarrier{}
	c.leaving, c.leave = context.WithCancel(context.Background())
	options := append(s.opts.grpcOptions(), grpc.WaitForHandlers(true), grpc.StreamInterceptor(c.intercept))
	if port.TLS != nil {
		options = append(options, grpc.Creds(expiring{credentials.NewTLS(port.TLS), s.opts.grace()}))
	}
	c.Server = grpc.NewServer(options...)
	s.register(c.Server, &port)
	return c
}

// methods returns the methods of a port besides the discovery service.
func (s *Server) methods(port Port) map[string]Unary {
	out := map[string]Unary{}
	maps.Copy(out, s.opts.Methods)
	maps.Copy(out, port.Methods)
	return out
}
