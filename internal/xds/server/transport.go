package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/http2"
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
	// requestContext returns a context that ends with the stream or its connection, and with the server.
	// It must be canceled before the request is answered.
	requestContext() (context.Context, context.CancelFunc)
	peer() string
	caller() *Peer
}

// sendMargin is for the framing of messages.
const sendMargin = 1 << 10

// Transport is an implementation of gRPC.
type Transport string

// The transports.
const (
	// TransportGRPC is grpc-go.
	TransportGRPC Transport = "grpc"
	// TransportHTTP2 is package http2, the default.
	TransportHTTP2 Transport = "http2"
)

// Port has the settings of one address that serves xDS. The zero value is plain text without
// authentication.
type Port struct {
	TLS *tls.Config // nil: plain text
	// Methods are served in addition to those of Options, and override them.
	Methods map[string]Unary
	// Authorize decides whether a peer may be the proxy that its node describes, and adds what the
	// node lacks. It may wait. Its errors are gRPC statuses. nil: every node is accepted.
	Authorize func(context.Context, *Peer, *model.Proxy) error
	// Questions answers streams that ask about the control plane; nil: it answers none.
	Questions Questions
	// Admit counts a connection of a peer that is not authenticated. It returns false if there are too many; leave ends the count. nil: all
	// are admitted.
	Admit func(net.Addr) (leave func(), ok bool)
}

// Peer is the other end of a stream or call.
type Peer struct {
	Address string
	// Certificates is the peer's verified chain, its own certificate first; nil: none.
	Certificates []*x509.Certificate
	// Authorization is the header of that name. Only calls of a Unary, and Questions, have it.
	Authorization string
}

type peerKey struct{}

// WithPeer returns the context of a call from p.
func WithPeer(ctx context.Context, p *Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// PeerOf returns the caller of a Unary from its context; never nil.
func PeerOf(ctx context.Context) *Peer {
	if p, ok := ctx.Value(peerKey{}).(*Peer); ok {
		return p
	}
	return &Peer{}
}

// PortServer accepts the connections of one port and serves their streams.
type PortServer interface {
	// Serve accepts connections until Stop is called, or until it fails. It closes the listener.
	Serve(net.Listener) error
	// GracefulStop accepts no new connections, asks peers to connect elsewhere, ends their streams
	// with UNAVAILABLE, and waits for calls in progress. When ctx ends it calls Stop.
	GracefulStop(ctx context.Context)
	// Stop cuts all streams, and waits for their end.
	Stop()
}

// ending is the status of streams whose server stops.
var ending = status.Error(codes.Unavailable, "this control plane stops: connect again, or to another one")

// NewPortServer returns a server of the service at a port.
func (s *Server) NewPortServer(t Transport, port Port) PortServer {
	port.Methods = s.methods(port)
	if t != TransportGRPC {
		o := s.opts.http2Options()
		o.TLS, o.Log, o.LimitUnauthenticated = port.TLS, s.log, port.Authorize != nil
		o.Yield, o.Admit = s.yield, port.Admit
		return http2PortServer{http2.New(s.http2Methods(&port), o)}
	}
	c := &grpcPortServer{admit: port.Admit}
	c.leaving, c.leave = context.WithCancel(context.Background())
	options := append(s.opts.grpcOptions(), grpc.WaitForHandlers(true), grpc.StreamInterceptor(c.intercept), grpc.ConnectionTimeout(handshakeTimeout))
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
