package server

import (
	"cmp"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// MaxTables is the number of tables that a proxy can be bound to.
const MaxTables = ledger.MaxTables

// Server is the aggregated discovery service.
//
// Its goroutines: the transport's, which bring requests to streams and have them answered;
// the senders, which bring published changes to streams; the watchdog; and on a transport
// that may block, for as long as a proxy reads too slowly, one that waits for it.
type Server struct {
	// Read-only.
	binder  Binder
	obs     distribution.Observer
	log     *slog.Logger
	opts    Options
	pool    *names.Pool
	senders []*sender
	stop    chan struct{}
	ended   sync.WaitGroup // senders and watchdog

	streams      registry
	disconnected disconnectedProxies
	turn         atomic.Uint64 // which sender is next

	publishing sync.Mutex // guards concerned
	concerned  []*stream  // of the change that is being published
}

// New makes a server and starts its senders; Close ends them.
func New(binder Binder, obs distribution.Observer, log *slog.Logger, opts Options) *Server {
	opts.RouteStrategy = cmp.Or(opts.RouteStrategy, RoutesAuto)
	if opts.Meter == nil {
		opts.Meter = unmetered{}
	}
	opts.Senders = cmp.Or(opts.Senders, runtime.GOMAXPROCS(0))
	s := &Server{binder: binder, obs: obs, log: log, opts: opts, pool: names.NewPool(), stop: make(chan struct{})}
	s.streams.init()
	for range opts.Senders {
		snd := &sender{wake: make(chan struct{}, 1)}
		s.senders = append(s.senders, snd)
		s.ended.Go(func() { snd.run(s.stop) })
	}
	s.ended.Go(s.watch)
	return s
}

// Close ends the senders. The grpc.Server must have been stopped.
func (s *Server) Close() {
	close(s.stop)
	s.ended.Wait()
}

// Publish tells that rev was committed to tables. It wakes the streams that are bound to
// them and does not wait for anything.
func (s *Server) Publish(rev model.Revision, tables []*table.Table) {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.concerned = s.streams.bound(rev, tables, s.concerned[:0])
	now := time.Now()
	s.obs.Published(rev, len(s.concerned), now)
	for _, st := range s.concerned {
		st.publish(rev, now)
	}
	for _, snd := range s.senders {
		snd.kick()
	}
	clear(s.concerned)
}

// open binds a stream to its tables, with its first request's node.
func (s *Server) open(st *stream, node []byte) error {
	p, agent, err := parseNode(node)
	if err != nil {
		return err
	}
	if err := st.authorize(p); err != nil {
		return err
	}
	st.proxy = p
	st.strategy, p.ScopedRoutes = s.strategy(st.protocol, p, agent)
	st.sender = s.senders[s.turn.Add(1)%uint64(len(s.senders))]
	present, leave := st.transport.present() // what is to be bound to may be long in coming
	defer leave()
	tables, release, err := s.binder.Bind(present, p, st.rebind)
	if err != nil {
		return unbound(p, err)
	}
	if st.release = release; release == nil {
		st.release = func() {}
	}
	st.account.before = s.disconnected.back(p.ID)
	s.streams.add(st, tables)
	st.begin()
	s.opts.Meter.Connected(p.IstioVersion, 1)
	s.log.Debug("proxy connected", "proxy", p.ID, "protocol", st.protocol.String(), "routes", st.strategy.Name)
	return nil
}

// unbound is the status of a stream that a binder does not serve: the binder's own, if it has one, or else UNAVAILABLE.
func unbound(p *model.Proxy, err error) error {
	code := codes.Unavailable
	if said, ok := status.FromError(err); ok {
		code, err = said.Code(), errors.New(said.Message())
	}
	return status.Errorf(code, "%s: %v", p, err)
}

// authorize tells whether the stream's peer may be p.
func (st *stream) authorize(p *model.Proxy) error {
	if st.port.Authorize == nil {
		return nil
	}
	peer := st.transport.caller()
	err := st.port.Authorize(peer, p)
	p.Verified = err == nil && p.ServiceAccount != ""
	if err != nil {
		st.server.log.Warn("proxy refused", "proxy", p.ID, "peer", peer.Address, "error", status.Convert(err).Message())
	}
	return err
}

// Proxies lists the connected proxies, by name.
func (s *Server) Proxies() []ProxyState {
	var out []ProxyState
	for _, st := range s.streams.all() {
		out = append(out, st.state())
	}
	slices.SortFunc(out, func(a, b ProxyState) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Stream, b.Stream))
	})
	return out
}

// Proxy gives the newest stream of a proxy, by node id or "name.namespace", or by its name alone where
// no other namespace has one of that name.
func (s *Server) Proxy(id string) (ProxyState, bool) {
	newest := s.find(id)
	if newest == nil {
		return ProxyState{}, false
	}
	return newest.state(), true
}

// A proxy that never asks for the endpoints of its clusters must get its listeners all
// the same: patience is how long they wait for it. It is Envoy's own patience, less some.
const (
	patience   = 10 * time.Second
	watchEvery = 2 * time.Second
)

// watch is the watchdog: it ends waits that take too long.
func (s *Server) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case now := <-tick.C:
			for _, st := range s.streams.all() {
				st.lookAfter(now)
			}
		}
	}
}
