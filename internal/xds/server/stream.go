package server

import (
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/base/defect"
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
	// authorization is the header of that name, for questions; empty once the stream has a proxy.
	authorization string
	proxy         *model.Proxy
	strategy      *ledger.Strategy
	release       func()
	number        uint64
	sender        *sender
	known         Known // what its workload uses, until the stream begins
	asked         bool  // the proxy asks for clusters by name, and for nothing else

	answered bool // a question was answered, so its peer is authorized; only for the goroutine that handles requests

	// Guarded by the registry's lock.
	bindNext []*table.Table // tables that the stream is bound to, until it has read them
	slots    [MaxTables]tableSlot
	counted  model.Revision // newest revision that the registry counted the stream for

	// other is, of a stream of everything, the one on which the proxy asks. followers are, of a stream on which a proxy asks,
	// those that settle with it; the list does not change. The registry writes both.
	other     atomic.Pointer[stream]
	followers atomic.Pointer[[]*stream]
	// present: the proxy counts as connected. A request was handled, and the stream has not ended. Written with mu held.
	present atomic.Bool
	inbox   inbox
	queued  atomic.Bool // the stream is in its sender's queue

	mu       handover // guards what follows
	ledger   *ledger.Ledger
	tables   []*table.Table
	bound    [MaxTables]*table.Table // memory of tables
	pending  pendingRevisions
	delivery delivery
	wait     time.Time      // since when something waits for the proxy's endpoints; zero: nothing waits
	moved    bool           // the ledger changed since the watchdog saw that nothing waits
	retry    *retrySchedule // nil: no refusal is temporary
	// refusedAt is when the proxy first refused what is held back. It has more until the next NACK.
	refusedAt map[refusedVersion]time.Time
	names     *endpointNames  // nil until the proxy requests endpoints by names that are not those of clusters
	warm      map[string]bool // scopes of shards on demand that the proxy loads at once
	closed    bool
}

// newStream begins a stream. The caller passes requests to handle, one after the other, calls answer
// after one or more of them, and then end.
func (s *Server) newStream(p ledger.Protocol, port *Port, t transport) *stream {
	st := &stream{server: s, port: port, transport: t, protocol: p, connected: time.Now()}
	st.pending.stream, st.delivery.stream = st, st
	st.mu.then = st.catchUp
	st.inbox.published, st.pending.revisions = st.inbox.room[:0], st.pending.room[:0]
	return st
}

// begin creates the ledger, after the stream was added to the registry: later commits wake the
// stream.
func (st *stream) begin() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.bindTo(st.server.streams.tables(st))
	states := st.states(&[MaxTables]*table.State{})
	if st.asked {
		st.ledger = ledger.NewAsked(st.strategy, st.server.pool, states)
		return
	}
	st.ledger = ledger.New(st.protocol, st.strategy, st.server.pool, states)
	st.carryKnown(states)
}

// bindTo binds the stream to tables, at most MaxTables.
func (st *stream) bindTo(tables []*table.Table) {
	st.tables = st.bound[:copy(st.bound[:], tables)]
}

// states returns the newest states of the stream's tables.
func (st *stream) states(into *[MaxTables]*table.State) []*table.State {
	for i, t := range st.tables {
		into[i] = t.State()
	}
	return into[:len(st.tables)]
}

// step brings the ledger up to date and sends what may be sent.
func (st *stream) step() {
	published := st.refresh()
	var room [5]ledger.Response
	responses := st.ledger.Next(room[:0])
	var now time.Time
	if len(responses) > 0 || len(st.pending.revisions) > 0 {
		now = time.Now()
	}
	if !published.IsZero() {
		st.server.opts.Meter.Queued(now.Sub(published))
	}
	st.delivery.send(responses, now)
	if st.asked {
		st.settleAsked()
		return
	}
	st.pending.settle(now)
}

// refresh brings the ledger up to date; published is that of readInbox.
func (st *stream) refresh() (published time.Time) {
	published, st.moved = st.readInbox(), true
	st.ledger.Published(st.newestPublished())
	var states [MaxTables]*table.State
	st.ledger.Update(st.states(&states))
	return published
}

// newestPublished returns the newest revision that was published to the stream and is not settled; 0: none.
func (st *stream) newestPublished() model.Revision {
	if st.asked {
		return st.askedPublished()
	}
	if n := len(st.pending.revisions); n > 0 {
		return st.pending.revisions[n-1]
	}
	return 0
}

// readInbox reads the inbox. published is when the oldest revision in it was published.
func (st *stream) readInbox() (published time.Time) {
	in := &st.inbox
	in.mu.Lock()
	if len(in.published) > 0 {
		published = in.since
	}
	st.pending.revisions = append(st.pending.revisions, in.published...)
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

// end ends the stream.
func (st *stream) end() {
	if st.release == nil {
		return // it was never bound
	}
	st.leave()
	st.server.streams.remove(st)
	st.inbox.mu.Lock()
	st.inbox.closed = true
	st.inbox.mu.Unlock()
	st.mu.Lock()
	st.readInbox()
	st.pending.report(len(st.pending.revisions), distribution.Gone, time.Now())
	st.mu.Unlock()
	if st.asked {
		st.release()
		return // the proxy's other stream stands for it
	}
	if !defect.StreamLeak.On() {
		st.release()
	}
	st.server.opts.Meter.Connected(st.proxy.IstioVersion, -1)
	st.server.log.Debug("proxy disconnected", "proxy", st.proxy.ID)
}

// arrive makes the proxy count as connected, after its first request was handled. Until then nothing is known of what it has.
// The stream's lock is held.
func (st *stream) arrive() {
	if st.present.Load() {
		return
	}
	st.present.Store(true)
	if !st.asked {
		st.server.disconnected.back(st.proxy.ID)
	}
}

// leave ends the steps of the stream, and makes the proxy count as disconnected. It precedes the report of the end, whose
// receivers look for the proxy.
func (st *stream) leave() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closed = true
	if !st.asked && !st.proxy.Extensions { // agents send no requests to workloads
		st.server.disconnected.add(st, st.lockedState(), time.Now())
	}
	st.delivery.setAnswered(resource.Cluster)
	st.present.Store(false)
}
