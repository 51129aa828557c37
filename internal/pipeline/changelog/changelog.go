// Package changelog records where the time of each change goes: a log of changes, each from its first
// event to the last proxy's answer, and the control plane's metrics.
//
// The life of a revision is in three files. changelog.go has its steps, in order:
//
//	Begin      the engine took a batch
//	Mark       a stage of the engine ended: store, derive, translate
//	Resources  how much differs
//	Published  the streams that are bound to changed tables were woken
//	Sent       a response that contains the revision was sent
//	Settled    a stream ACKed or refused the revision, is not concerned, or ended
//	finish     the last stream has settled: one log line, metrics, traces
//
// record.go counts for one revision, and change.go is what readers get. The other files answer more
// questions about changes: the last change of an object and removed endpoints (history.go), waiting for a
// change (follow.go), the slowest answers (trace.go). Metrics are in metrics*.go.
//
// Invariants:
//
//  1. The stages of a revision add up to its total. Each begins where the previous one ends.
//  2. A revision is finished once, when every stream that Published counted has settled. It is never
//     finished while its stages are in progress, although a stream may settle before Published.
//  3. Memory is bounded by the size of the ring and the number of objects, not by proxies or changes.
//  4. Streams never block, and take a lock only if a Tracer is set or a reader waits for a change.
package changelog

import (
	"context"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

var _ distribution.Observer = (*Log)(nil)

// Log records the newest revisions. It is the Observer of the xDS server. A revision's place in the ring
// is its number, so streams find it without a lock.
//
// The engine's goroutine calls Begin, Mark and Resources, in the order of revisions. The server calls
// Published, Sent and Settled, at any time and from any goroutine. Any goroutine may read.
type Log struct {
	// Read-only.
	log     *slog.Logger
	metrics *Metrics
	Tracers []Tracer    // set before the first change
	lines   chan Change // for Run; bounded: a line that does not fit is counted and dropped

	ring   []atomic.Pointer[record]
	newest atomic.Uint64 // the newest revision in the ring

	objects   objectIndex
	removals  removals
	followers followers
}

// DefaultChanges is the default number of changes that a log remembers.
const DefaultChanges = 1024

// pendingLines bounds the log lines that wait for Run.
const pendingLines = 256

// New makes a log of the newest size changes; 0: DefaultChanges.
func New(size int, log *slog.Logger, metrics *Metrics) *Log {
	if size <= 0 {
		size = DefaultChanges
	}
	return &Log{
		log: log, metrics: metrics,
		lines: make(chan Change, pendingLines),
		ring:  make([]atomic.Pointer[record], size),
	}
}

// Begin starts the clock of a revision. observed is the time of the first event of its batch.
func (l *Log) Begin(rev model.Revision, objects []ChangedObject, observed time.Time) {
	r := newRecord(rev, objects, observed)
	if len(l.Tracers) > 0 {
		r.answers = &answers{}
	}
	l.metrics.changed(objects)
	old := l.slot(rev).Swap(r)
	l.newest.Store(uint64(rev))
	size := model.Revision(len(l.ring))
	l.objects.note(rev, objects, observed, max(rev, size)-size)
	if old != nil && !old.distributed() { // some proxy never answered
		l.metrics.forgotten.Inc()
		l.queueLine(old)
		l.trace(old)
		l.followers.ended(old.rev)
	}
	l.followers.began(rev, objects)
}

// Mark ends a stage of the engine: StageStore, StageDerive or StageTranslate.
func (l *Log) Mark(rev model.Revision, stage Stage, at time.Time) {
	r := l.find(rev)
	if r == nil {
		return
	}
	r.ends[stage].last(at.Sub(r.observed))
	switch stage {
	case StageStore:
		l.metrics.stored(r.kinds, at)
	case StageTranslate:
		l.metrics.processed(r.kinds, at.Sub(r.observed)-r.ends[StageStore].get())
	}
}

// Resources adds to the number, and the encoded bytes, of the resources that a revision changed.
func (l *Log) Resources(rev model.Revision, n int, bytes int64) {
	if r := l.find(rev); r != nil {
		r.resources.Add(int64(n))
		r.bytes.Add(bytes)
	}
}

// Published records how many streams are bound to tables that a revision changed. With none the revision
// is distributed at once, so it is also called if no table changed.
func (l *Log) Published(rev model.Revision, concerned int, at time.Time) {
	if r := l.find(rev); r != nil && r.publish(concerned, at) {
		l.finish(r)
	}
}

// Sent records that a response with resources of a revision was sent to some proxy.
func (l *Log) Sent(rev model.Revision, at time.Time) {
	if r := l.find(rev); r != nil {
		r.ends[StageSend].earliest(at.Sub(r.observed))
	}
}

// Settled records how the revisions in (from, to] ended for one stream. Published must have counted the
// stream for each of them that is in the log.
func (l *Log) Settled(from, to model.Revision, outcome distribution.Outcome, at time.Time) {
	if size := model.Revision(len(l.ring)); to > size && from < to-size {
		from = to - size
	}
	var newer *record
	for rev := to; rev > from; rev-- {
		r := l.find(rev)
		if r == nil {
			continue
		}
		if outcome == distribution.ACKed || outcome == distribution.NACKed {
			r.sentWith(newer)
			if newer != nil && outcome == distribution.ACKed {
				r.overtaken.Add(1)
				l.metrics.superseded.Inc()
			}
			newer = r
		}
		if outcome == distribution.ACKed {
			l.metrics.converged(at.Sub(r.observed))
		}
		if r.settle(outcome, at) {
			l.finish(r)
		}
	}
}

// finish is called once for each revision, when its last stream has settled.
func (l *Log) finish(r *record) {
	l.metrics.distributed(r)
	l.queueLine(r)
	l.trace(r)
	l.followers.ended(r.rev)
}

// queueLine queues the log line of a revision. It never blocks, since streams call it.
func (l *Log) queueLine(r *record) {
	select {
	case l.lines <- r.snapshot():
	default:
		l.metrics.linesDropped.Inc()
	}
}

// Run writes log lines until ctx ends, and then those that are left.
func (l *Log) Run(ctx context.Context) {
	for {
		select {
		case c := <-l.lines:
			l.write(&c)
		case <-ctx.Done():
			l.drain()
			return
		}
	}
}

func (l *Log) drain() {
	for {
		select {
		case c := <-l.lines:
			l.write(&c)
		default:
			return
		}
	}
}

func (l *Log) write(c *Change) {
	level, msg := slog.LevelInfo, "change distributed"
	if c.State != Distributed {
		level, msg = slog.LevelWarn, "change never fully distributed"
	} else if c.Proxies.Nacked > 0 {
		level, msg = slog.LevelWarn, "change distributed, refused by some"
	}
	l.log.LogAttrs(context.Background(), level, msg, c.Attrs()...)
}

// Newest returns the newest revision that has begun; 0: none.
func (l *Log) Newest() model.Revision { return model.Revision(l.newest.Load()) }

// Change returns a revision as it is now; false: the log does not have it, or not any more.
func (l *Log) Change(rev model.Revision) (Change, bool) {
	r := l.find(rev)
	if r == nil {
		return Change{}, false
	}
	return r.snapshot(), true
}

// Changes yields the changes that the log remembers, newest first.
func (l *Log) Changes() iter.Seq[Change] {
	return func(yield func(Change) bool) {
		newest := l.Newest()
		for i := range model.Revision(len(l.ring)) {
			if i >= newest {
				return
			}
			if r := l.find(newest - i); r != nil && !yield(r.snapshot()) {
				return
			}
		}
	}
}

func (l *Log) slot(rev model.Revision) *atomic.Pointer[record] {
	return &l.ring[uint64(rev)%uint64(len(l.ring))]
}

func (l *Log) find(rev model.Revision) *record {
	if r := l.slot(rev).Load(); r != nil && r.rev == rev {
		return r
	}
	return nil
}
