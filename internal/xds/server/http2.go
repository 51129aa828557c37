package server

import (
	"context"

	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/xds/http2"
	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// http2Methods returns the methods of a port for an http2.Server.
func (s *Server) http2Methods(port *Port) map[string]http2.Handler {
	handler := func(p ledger.Protocol, asked bool) http2.Handler {
		return func(h *http2.Stream) http2.Receiver {
			st := s.newStream(p, port, http2Transport{h})
			st.asked = asked
			if port.Questions != nil {
				st.authorization = h.Authorization() // h forgets it
			}
			return http2Receiver{st}
		}
	}
	methods := map[string]http2.Handler{
		"/" + serviceName + "/" + sotwMethod:            handler(ledger.Sotw, false),
		"/" + serviceName + "/" + deltaMethod:           handler(ledger.Delta, false),
		"/" + clusterServiceName + "/" + clustersMethod: handler(ledger.Delta, true),
	}
	for path, method := range port.Methods {
		methods[path] = func(h *http2.Stream) http2.Receiver { return newUnaryStream(h, method) }
	}
	return methods
}

// http2Options returns the same options as grpcOptions.
func (o *Options) http2Options() http2.Options {
	return http2.Options{
		MaxMessage: maxRequest, Keepalive: keepaliveTime, PingTimeout: keepaliveTimeout, MaxAge: o.MaxConnectionAge, MaxAgeGrace: o.grace(),
	}
}

// http2PortServer is a PortServer of package http2.
type http2PortServer struct{ *http2.Server }

func (c http2PortServer) GracefulStop(ctx context.Context) {
	c.Server.GracefulStop(ctx, toHTTP2(status.Convert(ending)))
}

// http2Status returns a gRPC status for package http2.
func http2Status(err error) error {
	if err == nil {
		return nil
	}
	return toHTTP2(status.Convert(err))
}

func toHTTP2(s *status.Status) *http2.Status {
	return &http2.Status{Code: http2.Code(s.Code()), Message: s.Message()}
}

// http2Transport queues what the peer does not accept. A stream has at most one response of each
// type in flight that the peer has not read, which bounds the queue. The parts of responses are shared.
type http2Transport struct{ stream *http2.Stream }

func (t http2Transport) send(messages []message) (kept bool, err error) {
	return t.stream.SendAll(messages)
}

func (t http2Transport) window() int { return 0 }

func (t http2Transport) pending() int { return t.stream.Pending() }

func (t http2Transport) requestContext() (context.Context, context.CancelFunc) {
	return t.stream.RequestContext()
}

func (t http2Transport) peer() string { return t.stream.Peer() }

func (t http2Transport) caller() *Peer { return http2Peer(t.stream) }

// http2Peer returns the peer of a stream or call on package http2.
func http2Peer(h *http2.Stream) *Peer {
	return &Peer{Address: h.Peer(), Certificates: h.PeerCertificates(), Authorization: h.Authorization()}
}
