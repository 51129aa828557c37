package server

import (
	"maps"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

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
	// Stop cuts all streams, and waits for their end.
	Stop()
}

// Carry makes a carrier for the service at a port.
func (s *Server) Carry(t Transport, port Port) Carrier {
	port.Methods = s.methods(port)
	if t != TransportGRPC {
		o := HTTP2Options()
		o.TLS, o.Log = port.TLS, s.log
		return http2.New(s.http2Methods(&port), o)
	}
	options := append(GRPCOptions(), grpc.WaitForHandlers(true))
	if port.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(port.TLS)))
	}
	g := grpc.NewServer(options...)
	s.register(g, &port)
	return g
}

// methods are all that a port has beside the discovery service.
func (s *Server) methods(port Port) map[string]Unary {
	out := map[string]Unary{}
	maps.Copy(out, s.opts.Methods)
	maps.Copy(out, port.Methods)
	return out
}
