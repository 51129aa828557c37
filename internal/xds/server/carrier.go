package server

import (
	"context"
	"maps"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/xds/http2"
)

// Transport says what streams are carried by.
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
	// Serve accepts until Stop is called, or until it fails. It closes the listener.
	Serve(net.Listener) error
	// GracefulStop accepts no more, tells peers to connect elsewhere, ends their streams with
	// UNAVAILABLE, and waits for calls that are being answered. When ctx ends it is Stop.
	GracefulStop(ctx context.Context)
	// Stop cuts all streams, and waits for their end.
	Stop()
}

// ending is what streams end with when their carrier does.
var ending = status.Error(codes.Unavailable, "this control plane ends: connect to another one, or again")

// http2Carrier is a carrier of package http2.
type http2Carrier struct{ *http2.Server }

func (c http2Carrier) GracefulStop(ctx context.Context) {
	c.Server.GracefulStop(ctx, toHTTP2(status.Convert(ending)))
}

// Carry makes a carrier for the service at a port.
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

// methods are all that a port has beside the discovery service.
func (s *Server) methods(port Port) map[string]Unary {
	out := map[string]Unary{}
	maps.Copy(out, s.opts.Methods)
	maps.Copy(out, port.Methods)
	return out
}
