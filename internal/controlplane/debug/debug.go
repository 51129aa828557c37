// Package debug serves a JSON view of every stage over HTTP, with the metrics and the
// profiles, on --http-addr (Istio's port 15014).
//
// It reads stages through what Stages holds and changes nothing. What it gives away is
// configuration: it is for requests from loopback, and for those with credentials.
package debug

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/moonsail/moonsail/internal/controlplane/agents"
	"github.com/moonsail/moonsail/internal/controlplane/dashboard"
	"github.com/moonsail/moonsail/internal/controlplane/peers"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/security/debugauth"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Stages is what there is to look at. A part that is nil has a page that says so.
// All functions may be called at any time, by many goroutines.
type Stages struct {
	// Ready gives nil once the control plane serves what its sources hold, and else
	// what it still waits for.
	Ready func() error
	// Problems are what is wrong with the configuration: JSON objects, one each.
	Problems func() any
	// Source is how well an API server is heard; nil: there is none.
	Source func() any
	// Snapshot is the newest state of the store.
	Snapshot func() *store.Snapshot
	// Scopes tells of each scope who shares it and how large it is.
	Scopes  func() any
	Changes Changes
	Proxies Proxies
	// Explain answers questions about them.
	Explain  *explain.Explainer
	Sidecars Sidecars
	Gatherer prometheus.Gatherer
	// CA is how the certificate authority stands.
	CA func() any
	// Peers are the other control planes of the mesh; nil: there are none.
	Peers *peers.Peers
}

// HeaderOthers is in answers about what one control plane knows: how many others there are,
// where there are any. Answers about all say themselves who was asked.
const HeaderOthers = "Moonsail-Other-Control-Planes"

// Changes is what changelog.Log is to this package.
type Changes interface {
	Newest() model.Revision
	Changes() iter.Seq[changelog.Change]
	Change(model.Revision) (changelog.Change, bool)
}

// Proxies is what the xDS server is to this package.
type Proxies interface {
	// Proxies are all that are connected, in the order in which people read them.
	Proxies() []server.ProxyState
	// Proxy is one of them, by node id or name.namespace.
	Proxy(id string) (server.ProxyState, bool)
}

// Sidecars is what agents.Client is to this package.
type Sidecars interface {
	// Get reads a page of a proxy's agent.
	Get(ctx context.Context, proxy, page string, query url.Values) ([]byte, error)
	// Sample asks some proxies that have ACKed a revision whether they use it.
	Sample(ctx context.Context, where []distribution.ProxySyncStatus, rev model.Revision, most int) []agents.Use
}

// Scrapeable are the pages that tell numbers, and no configuration.
var Scrapeable = []string{"/metrics", "/ready", "/version"}

// Profiling sets how much the runtime watches for the mutex and block profiles.
type Profiling struct {
	MutexFraction int           // one of so many contentions is sampled; 0: none
	BlockRate     time.Duration // one sample per so much time blocked; 0: none
}

// Apply sets the rates for the whole process.
func (p Profiling) Apply() {
	runtime.SetMutexProfileFraction(p.MutexFraction)
	runtime.SetBlockProfileRate(int(p.BlockRate.Nanoseconds()))
}

// Server serves the pages.
type Server struct {
	http http.Server
	tls  *tls.Config // nil: plain text
}

// Limits of one request. Profiles may take as long as they are asked for on top.
const (
	headerTimeout   = 5 * time.Second
	requestTimeout  = 30 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 3 * time.Second
	maxHeaderBytes  = 64 << 10
)

// NewServer makes a server of these stages, for whom they are.
func NewServer(stages Stages, who debugauth.Policy, log *slog.Logger) *Server {
	if who.Credentials() {
		who.Open = slices.Concat(who.Open, dashboard.Paths) // which asks people for a token, and sends it with what it asks
	}
	return &Server{tls: who.TLS(), http: http.Server{
		Handler:           who.Guard(Handler(stages, log), fail, log),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout, // net/http/pprof adds the length of a profile
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
}

// Serve answers on ln until ctx ends, and then lets requests under way finish for a
// moment. It closes ln.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ended := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { ended <- s.shutdown() })
	if s.tls != nil {
		ln = tls.NewListener(ln, s.tls)
	}
	err := s.http.Serve(ln)
	if !stop() {
		err = <-ended
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("debug server on %s: %w", ln.Addr(), err)
	}
	return nil
}

func (s *Server) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		return s.http.Close() // a profile was under way: it is cut
	}
	return nil
}
