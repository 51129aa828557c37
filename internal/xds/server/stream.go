package server

import (
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// stream is the stream of one proxy.
type stream struct {
	// Read-only once the stream is in the registry.
	server    *Server
	port      *Port
	transport transport
	protocol  ledger.Protocol
	connected time.Time
	proxy     *model.Proxy
	strategy  *ledger.Strategy
	release   func()
	number    uint64
	sender    *sender

	// Guarded by the registry's lock.
	bindNext []*table.Table // tables that the stream is bound to, until it has read them
	places   [MaxTables]place
	counted  model.Revision // newest revision that the registry counted the stream for

	inbox inbox

	mu       handover // guards what follows
	ledger   *ledger.Ledger
	tables   []*table.Table
	bound    [MaxTables]*table.Table // memory of tables
	account  account
	delivery delivery
	wait     time.Time // since when something waits for the proxy's endpoints; zero: nothing waits
	moved    bool      // the ledger changed since the watchdog saw that nothing waits
	again    *retry    // nil: no refusal is temporary
	closed   bool
}

// requests is a pool: between requests a stream needs none.
var requests = sync.Pool{New: func() any { return new(request) }}

// take handles one request, and answers it.
func (st *stream) take(b []byte) error {
	if err := st.handle(b); err != nil {
		return err
	}
	return st.answer()
}

// handle handles one request. The caller must call answer, or handle for another request.
func (st *stream) handle(b []byte) error {
	r := requests.Get().(*request)
	defer requests.Put(r)
	defer r.reset()
	if err := r.parse(st.protocol, b); err != nil {
		return status.Errorf(codes.InvalidArgument, "the request is not a valid %s discovery request: %v", st.protocol, err)
	}
	if st.proxy == nil {
		if err := st.server.open(st, r.node); err != nil {
			return err
		}
	}
	if err := st.keep(r); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.moved = true
	if r.Error != nil {
		st.reject(r)
	}
	if !st.ledger.Handle(&r.Request) {
		st.server.log.Debug("type is not served", "proxy", st.proxy.ID, "type", string(r.TypeURL))
	}
	return nil
}

// answer sends what may be sent after requests.
func (st *stream) answer() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ledger == nil {
		return nil // the only request was refused
	}
	st.delivery.landed()
	st.step()
	if err := st.ledger.Err(); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

// reject reports a NACK.
func (st *stream) reject(r *request) {
	st.server.log.Warn("proxy refused configuration", "proxy", st.proxy.ID,
		"type", strings.TrimPrefix(string(r.TypeURL), "type.googleapis.com/"), "message", ledger.Shortened(r.Error.Message))
	for t := range resource.Types {
		if resource.Types[t].URL == string(r.TypeURL) {
			st.server.opts.Meter.Rejected(resource.Type(t))
			return // types with the same URL count as the first
		}
	}
}

// begin creates the ledger, after the stream was added to the registry: later commits wake the
// stream.
func (st *stream) begin() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.bindTo(st.server.streams.tables(st))
	st.ledger = ledger.New(st.protocol, st.strategy, st.server.pool, st.states(&[MaxTables]*table.State{}))
}

// states returns the newest states of the stream's tables.
func (st *stream) states(into *[MaxTables]*table.State) []*table.State {
	for i, t := range st.tables {
		into[i] = t.State()
	}
	return into[:len(st.tables)]
}

// advance is called by the sender. It does not wait: if the lock is taken, its holder catches up.
func (st *stream) advance() {
	if st.mu.TryLock() {
		st.stepIfLive()
		st.mu.Unlock()
	}
}

// catchUp is called after the lock was released: the sender may have found it taken.
func (st *stream) catchUp() {
	for st.mu.news.Load() && st.mu.TryLock() {
		live := st.stepIfLive()
		st.mu.Mutex.Unlock()
		if !live {
			return // the stream has not begun, and will begin with a step, or it has ended
		}
	}
}

// stepIfLive is step, if the stream has begun and has not ended.
func (st *stream) stepIfLive() bool {
	if st.ledger == nil || st.closed {
		return false
	}
	st.step()
	return true
}

// refresh brings the ledger up to date; published is that of readInbox.
func (st *stream) refresh() (published time.Time) {
	published, st.moved = st.readInbox(), true
	var states [MaxTables]*table.State
	st.ledger.Update(st.states(&states))
	return published
}

// step brings the ledger up to date and sends what may be sent.
func (st *stream) step() {
	published := st.refresh()
	var room [5]ledger.Response
	responses := st.ledger.Next(room[:0])
	var now time.Time
	if len(responses) > 0 || len(st.account.pendingRevisions) > 0 {
		now = time.Now()
	}
	if !published.IsZero() {
		st.server.opts.Meter.Queued(now.Sub(published))
	}
	st.delivery.send(responses, now)
	st.account.settle(now)
}

// readInbox reads the inbox. published is when the oldest revision in it was published.
func (st *stream) readInbox() (published time.Time) {
	in := &st.inbox
	in.mu.Lock()
	if len(in.published) > 0 {
		published = in.since
	}
	st.account.pendingRevisions = append(st.account.pendingRevisions, in.published...)
	in.published = in.published[:0]
	st.mu.news.Store(false)
	rebound := in.rebound
	in.rebound = false
	in.mu.Unlock()
	if rebound {
		if t := st.server.streams.tables(st); t != nil {
			st.bindTo(t)
		}
	}
	return published
}

// bindTo binds the stream to tables, at most MaxTables.
func (st *stream) bindTo(tables []*table.Table) {
	st.tables = st.bound[:copy(st.bound[:], tables)]
}

// end ends the stream.
func (st *stream) end() {
	if st.release == nil {
		return // it was never bound
	}
	st.server.streams.remove(st)
	st.inbox.mu.Lock()
	st.inbox.closed = true
	st.inbox.mu.Unlock()
	st.mu.Lock()
	st.readInbox()
	st.closed = true
	st.account.report(len(st.account.pendingRevisions), distribution.Gone, time.Now())
	st.mu.Unlock()
	if !st.proxy.Extensions { // such a stream is an agent's: it sends no requests to workloads
		st.server.disconnected.add(st, time.Now())
	}
	st.release()
	st.server.opts.Meter.Connected(st.proxy.IstioVersion, -1)
	st.server.log.Debug("proxy disconnected", "proxy", st.proxy.ID)
}
