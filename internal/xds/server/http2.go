package server

import (
	"context"

	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/xds/http2"
	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// Methods are the service's and those beside it, for an http2.Server.
func (s *Server) Methods() map[string]http2.Handler {
	handler := func(p ledger.Protocol) http2.Handler {
		return func(h *http2.Stream) http2.Receiver { return pushed{s.newStream(p, http2Transport{h})} }
	}
	methods := map[string]http2.Handler{
		"/" + serviceName + "/" + sotwMethod:  handler(ledger.Sotw),
		"/" + serviceName + "/" + deltaMethod: handler(ledger.Delta),
	}
	for path, method := range s.opts.Methods {
		methods[path] = func(h *http2.Stream) http2.Receiver { return unaryStream{h, method} }
	}
	return methods
}

// HTTP2Options are what suits the service: the same as GRPCOptions.
func HTTP2Options() http2.Options {
	return http2.Options{MaxMessage: maxRequest, Keepalive: keepaliveTime, PingTimeout: keepaliveTimeout}
}

// pushed is a stream whose requests are brought to it.
type pushed struct{ st *stream }

// Receive implements http2.Receiver.
func (p pushed) Receive(b []byte) error {
	if err := p.st.take(b); err != nil {
		s := status.Convert(err)
		return &http2.Status{Code: http2.Code(s.Code()), Message: s.Message()}
	}
	return nil
}

// End implements http2.Receiver.
func (p pushed) End() { p.st.end() }

// http2Transport queues what the peer does not take: a stream has at most one response of
// each type in flight, so that at most these are queued, and their parts are shared.
type http2Transport struct{ stream *http2.Stream }

func (t http2Transport) send(m message) error { return t.stream.Send(m.parts) }

func (t http2Transport) window() int { return 0 }

func (t http2Transport) pending() int { return t.stream.Pending() }

func (t http2Transport) context() context.Context { return t.stream.Context() }

func (t http2Transport) peer() string { return t.stream.Peer() }
