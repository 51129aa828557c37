// Package debug serves JSON pages over every stage by HTTP, with metrics and profiles, on --http-addr
// (Istio's port 15014).
//
// It reads stages through Stages and changes nothing. The pages show configuration: they require a request
// from loopback, or credentials.
//
// handler.go lists the pages. join.go and peers.go combine the answers of several control planes.
package debug

import (
	"context"
	"crypto/tls"
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

	"github.com/moonsail/moonsail/internal/base/httpserve"
	"github.com/moonsail/moonsail/internal/controlplane/agents"
	"github.com/moonsail/moonsail/internal/controlplane/dashboard"
	"github.com/moonsail/moonsail/internal/controlplane/dependencies"
	"github.com/moonsail/moonsail/internal/controlplane/peers"
	"github.com/moonsail/moonsail/internal/controlplane/traffic"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/pipeline/store"
	"github.com/moonsail/moonsail/internal/security/debugauth"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Stages are the sources of the pages. If a part is nil, its page says that it is absent. All functions may
// be called at any time, by many goroutines.
type Stages struct {
	// Ready returns nil once the control plane serves what its sources have, and otherwise what it waits
	// for.
	Ready func() error
	// Problems returns the problems of the configuration, for JSON.
	Problems func() any
	// ConfigDir is the directory that is the source; empty: it is an API server.
	ConfigDir string
	// Source returns the health of the API server; nil: there is no API server.
	Source func() any
	// Snapshot returns the newest state of the store.
	Snapshot func() *store.Snapshot
	// ProxyGroups returns each proxy group, with its number of proxies and its size.
	ProxyGroups func() any
	Changes     Changes
	Proxies     Proxies
	// Explain answers questions about the stages.
	Explain  *explain.Explainer
	Sidecars Sidecars
	Traffic  Traffic
	// Dependencies are nil if they are not learned.
	Dependencies Dependencies
	Gatherer     prometheus.Gatherer
	// CA returns the state of the certificate authority.
	CA func() any
	// More are pages of other packages, below /debug/.
	More []Page
	// Peers are the other control planes of the mesh; nil: there are none.
	Peers *peers.Peers
}

// Page is a page of another package. Its answers are about this control plane. Serve limits large answers itself.
type Page struct {
	Path  string
	About string
	Serve http.HandlerFunc
}

// HeaderOthers is in answers about one control plane's knowledge: the number of other control planes, if
// there are any. Answers about all control planes list them.
const HeaderOthers = "Moonsail-Other-Control-Planes"

// Changes is the part of changelog.Log that the pages read.
type Changes interface {
	Newest() model.Revision
	Changes() iter.Seq[changelog.Change]
	Change(model.Revision) (changelog.Change, bool)
	// Deleted returns the objects of a kind that were deleted lately.
	Deleted(model.Kind) []model.Key
}

// Proxies is the part of the xDS server that the pages read.
type Proxies interface {
	// Proxies returns all connected proxies, in an order for people.
	Proxies() []server.ProxyState
	// Proxy returns the proxy with a node ID or name.namespace.
	Proxy(id string) (server.ProxyState, bool)
	// LastStates returns the last states of proxies that have disconnected.
	LastStates() []server.ProxyState
}

// Sidecars is the part of agents.Client that the pages use.
type Sidecars interface {
	// Get reads a page of a proxy's agent.
	Get(ctx context.Context, proxy, page string, query url.Values) ([]byte, error)
	// Sample asks some proxies that ACKed a revision whether they use it.
	Sample(ctx context.Context, where []distribution.ProxySyncStatus, rev model.Revision, most int) []agents.Use
}

// Traffic is the part of traffic.Meter that the pages use.
type Traffic interface {
	// Graph returns the newest graph, and has a newer one measured.
	Graph() *traffic.Graph
}

const (
	readyPath = "/ready"
	indexPath = "/debug"
)

// Dependencies is the part of dependencies.Reporter that the pages use.
type Dependencies interface {
	Report(q dependencies.Question) *dependencies.Report
}

// Scrapeable are the pages with numbers and without configuration.
var Scrapeable = []string{"/metrics", readyPath, "/version"}

// Profiling sets the runtime's sampling rates of the mutex and block profiles.
type Profiling struct {
	MutexFraction int           // one of this many contentions is sampled; 0: none
	BlockRate     time.Duration // one sample per this much time blocked; 0: none
}

// Apply sets the rates for the whole process.
func (p Profiling) Apply() {
	runtime.SetMutexProfileFraction(p.MutexFraction)
	runtime.SetBlockProfileRate(int(p.BlockRate.Nanoseconds()))
}

// Server serves the pages.
type Server struct {
	http *http.Server
	tls  *tls.Config // nil: plain text
}

// Limits of one request. Profiles may take their requested duration in addition.
const (
	headerTimeout   = 5 * time.Second
	requestTimeout  = 30 * time.Second
	idleTimeout     = 2 * time.Minute
	shutdownTimeout = 3 * time.Second
	maxHeaderBytes  = 64 << 10
)

// NewServer returns a server of the stages, with an access policy.
func NewServer(stages Stages, who debugauth.Policy, log *slog.Logger) *Server {
	if who.Credentials() {
		who.Open = slices.Concat(who.Open, dashboard.Paths) // it asks people for a token, and sends it with its requests
	}
	return &Server{tls: who.TLS(), http: httpServer(who.Guard(Handler(stages, log), fail, log), log)}
}

// NewReadyServer returns a server of /ready alone, in plain text and for all callers. It answers as the page of NewServer.
func NewReadyServer(ready func() error, log *slog.Logger) *Server {
	h := &handler{stages: Stages{Ready: ready}, log: log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+readyPath, h.ready)
	return &Server{http: httpServer(h.recovering(mux), log)}
}

func httpServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout, // net/http/pprof adds the length of a profile
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// Serve serves ln until ctx ends, and then gives requests in progress a moment to finish. It closes ln.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if s.tls != nil {
		ln = tls.NewListener(ln, s.tls)
	}
	if err := httpserve.Serve(ctx, s.http, ln, shutdownTimeout); err != nil {
		return fmt.Errorf("debug server on %s: %w", ln.Addr(), err)
	}
	return nil
}
