package server

import (
	"crypto/tls"
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

// Carry makes a carrier for the service; without certificates it is in plain text.
func (s *Server) Carry(t Transport, certificates *tls.Config) Carrier {
	if t != TransportGRPC {
		o := HTTP2Options()
		o.TLS, o.Log = certificates, s.log
		return http2.New(s.Methods(), o)
	}
	options := append(GRPCOptions(), grpc.WaitForHandlers(true))
	if certificates != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(certificates)))
	}
	g := grpc.NewServer(options...)
	s.Register(g)
	return g
}
