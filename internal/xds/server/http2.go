package server

import (
	"context"

	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/xds/http2"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/wire"
)

// http2Methods returns the methods of a port for an http2.Server.
func (s *Server) http2Methods(port *Port) map[string]http2.Handler {
	handler := func(p ledger.Protocol) http2.Handler {
		return func(h *http2.Stream) http2.Receiver { return pushed{s.newStream(p, port, http2Transport{h})} }
	}
	methods := map[string]http2.Handler{
		"/" + serviceName + "/" + sotwMethod:  handler(ledger.Sotw),
		"/" + serviceName + "/" + deltaMethod: handler(ledger.Delta),
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

// pushed is a stream that receives its requests from package http2.
type pushed struct{ st *stream }

// Receive implements http2.Receiver.
func (p pushed) Receive(b []byte) error {
	if err := p.st.handle(b); err != nil {
		return http2Status(err)
	}
	p.st.transport.(http2Transport).stream.Trust()
	return nil
}

// Quick implements http2.Quick. The first request binds the proxy, and a request that lists
// resources may add route shards: these may wait.
func (p pushed) Quick(b []byte) bool {
	if p.st.proxy == nil {
		return false
	}
	for len(b) > 0 {
		num, _, rest, err := wire.Next(b)
		if err != nil || num == initialVersions && p.st.protocol == ledger.Delta {
			return false
		}
		b = rest
	}
	return true
}

// Gathered implements http2.Gatherer: one step answers all requests that arrived.
func (p pushed) Gathered() error { return http2Status(p.st.answer()) }

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

// End implements http2.Receiver.
func (p pushed) End() { p.st.end() }

// http2Transport queues what the peer does not accept. A stream has at most one response of each
// type in flight, which bounds the queue. The parts of responses are shared.
type http2Transport struct{ stream *http2.Stream }

func (t http2Transport) send(messages []message) (kept bool, err error) {
	return t.stream.SendAll(messages)
}

func (t http2Transport) window() int { return 0 }

func (t http2Transport) pending() int { return t.stream.Pending() }

func (t http2Transport) present() (context.Context, context.CancelFunc) { return t.stream.Present() }

func (t http2Transport) peer() string { return t.stream.Peer() }

func (t http2Transport) caller() *Peer { return http2Peer(t.stream) }
