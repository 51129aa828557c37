package server

import (
	"log/slog"

	"google.golang.org/grpc"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// Server is the aggregated discovery service.
type Server struct {
	binder Binder
	obs    Observer
	log    *slog.Logger
	opts   Options
}

// New makes a server and starts its senders; Close ends them.
func New(binder Binder, obs Observer, log *slog.Logger, opts Options) *Server {
	return &Server{binder: binder, obs: obs, log: log, opts: opts}
}

// GRPCOptions are what a grpc.Server needs to serve this service: its codec, and
// windows and limits that suit it. Other services on it are served as usual.
func GRPCOptions() []grpc.ServerOption { return nil }

// Register adds the service to a grpc.Server that was made with GRPCOptions.
func (s *Server) Register(g *grpc.Server) {}

// Publish tells that rev was committed to tables. It wakes the streams that are bound to
// them and does not wait for anything.
func (s *Server) Publish(rev model.Revision, tables []*table.Table) {}

// Proxies lists the connected proxies, by name.
func (s *Server) Proxies() []ProxyState { return nil }

// Proxy gives the newest stream of a proxy, by node id or "name.namespace".
func (s *Server) Proxy(id string) (ProxyState, bool) { return ProxyState{}, false }

// Close ends the senders. The grpc.Server must have been stopped.
func (s *Server) Close() {}
