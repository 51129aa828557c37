package server

import (
	"cmp"
	"errors"
	"log/slog"
	"net/netip"
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
// Its goroutines are: those of the transport, which pass requests to streams and send answers; the
// senders, which send published changes; the watchdog; and, on a transport that may block, one for
// each proxy that reads too slowly. Close ends the senders and the watchdog. The others end with
// their stream.
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
	refused      *refusedLog
	turn         atomic.Uint64 // number of the next sender

	clustersUnanswered atomic.Int64 // streams whose clusters are not answered

	publishing sync.Mutex // guards concerned
	concerned  []*stream  // streams of the change that is being published
}

// New returns a server and starts its senders and watchdog. Close ends them.
func New(binder Binder, obs distribution.Observer, log *slog.Logger, opts Options) *Server {
	opts.RouteStrategy = cmp.Or(opts.RouteStrategy, RoutesAuto)
	if opts.Meter == nil {
		opts.Meter = unmetered{}
	}
	opts.Senders = cmp.Or(opts.Senders, runtime.GOMAXPROCS(0))
	s := &Server{binder: binder, obs: obs, log: log, opts: opts, pool: names.NewPool(), refused: newRefusedLog(), stop: make(chan struct{})}
	s.streams.init()
	for range opts.Senders {
		snd := &sender{wake: make(chan struct{}, 1)}
		s.senders = append(s.senders, snd)
		s.ended.Go(func() { snd.run(s.stop) })
	}
	s.ended.Go(s.watch)
	return s
}

// Close ends the senders and the watchdog. The port servers must have been stopped.
func (s *Server) Close() {
	close(s.stop)
	s.ended.Wait()
}

// Publish announces that rev was committed to tables. It wakes the streams that are bound to them,
// and does not block.
func (s *Server) Publish(rev model.Revision, tables []*table.Table) {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.concerned = s.streams.bound(rev, tables, s.concerned[:0])
	now := time.Now()
	asked := slices.IndexFunc(s.concerned, func(st *stream) bool { return !st.asked })
	if asked < 0 {
		asked = len(s.concerned)
	}
	s.obs.Published(rev, len(s.concerned)-asked, now)
	for _, st := range s.concerned { // those on which proxies ask come first: the others settle with them
		st.publish(rev, now)
	}
	for _, snd := range s.senders {
		snd.kick()
	}
	clear(s.concerned)
}

// open binds a stream to tables, by the node of its first request.
func (s *Server) open(st *stream, node []byte) error {
	p, agent, err := parseNode(node)
	if err != nil {
		return err
	}
	if err := st.authorize(p); err != nil {
		return err
	}
	st.proxy, p.Peer = p, peerIP(st.transport.peer())
	st.authorization = ""
	st.strategy, p.ScopedRoutes = s.strategy(st.protocol, p, agent)
	p.OnDemand = canAsk(st.protocol, p, agent)
	if err := st.admitAsked(); err != nil {
		return err
	}
	st.sender = s.senders[s.turn.Add(1)%uint64(len(s.senders))]
	ctx, cancel := st.transport.requestContext() // computing the tables may take long
	defer cancel()
	tables, release, err := s.binder.Bind(ctx, p, st.rebind)
	if err != nil {
		return bindError(p, err)
	}
	if st.release = release; release == nil {
		st.release = func() {}
	}
	if !st.asked {
		st.pending.before = s.disconnected.settled(p.ID)
	}
	st.known = st.learned(ctx, tables)
	s.streams.add(st, st.visible(tables))
	st.begin()
	if st.asked {
		return nil // the proxy's other stream stands for it
	}
	s.opts.Meter.Connected(p.IstioVersion, 1)
	s.log.Debug("proxy connected", "proxy", p.ID, "protocol", st.protocol.String(), "routes", st.strategy.Name)
	return nil
}

// peerIP returns the IP address of a peer; empty: it has none.
func peerIP(address string) string {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return ""
	}
	return a.Addr().Unmap().String()
}

// bindError returns the status of a stream that cannot be bound: that of the error, or else
// UNAVAILABLE.
func bindError(p *model.Proxy, err error) error {
	code := codes.Unavailable
	if said, ok := status.FromError(err); ok {
		code, err = said.Code(), errors.New(said.Message())
	}
	return status.Errorf(code, "%s: %v", p, err)
}

// authorize checks whether the stream's peer may be p.
func (st *stream) authorize(p *model.Proxy) error {
	if st.port.Authorize == nil {
		return nil
	}
	peer := st.transport.caller()
	ctx, cancel := st.transport.requestContext()
	err := st.port.Authorize(ctx, peer, p)
	cancel()
	p.Verified = err == nil && p.ServiceAccount != ""
	if err != nil && status.Code(err) != codes.Unavailable {
		st.server.refused.log(st.server.log, time.Now(), p.ID, peer.Address, err)
	}
	return err
}
